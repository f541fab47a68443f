//! Conversion of Swagger 2.0 to the form of `OpenAPI` 3.0.
//!
//! Schemas stay where they are, so references to them stay valid. Parameters and responses are resolved
//! and rewritten in each operation. The result has what an import reads, and nothing else.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::{json_shape::copy_fits, limits::ImportLimits, references::Resolver};

/// Methods that a path can hold.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// Fields of a parameter that are part of its schema in version 3.
const SCHEMA_FIELDS: [&str; 18] = [
    "type",
    "format",
    "items",
    "default",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "enum",
    "multipleOf",
    "x-nullable",
    "description",
];

/// Fields of a document that stay as they are.
const KEPT_FIELDS: [&str; 6] =
    ["info", "tags", "security", "definitions", "parameters", "responses"];

/// Fields of an operation that version 3 has as well.
const OPERATION_FIELDS: [&str; 6] =
    ["operationId", "summary", "description", "tags", "deprecated", "security"];

/// Converts a document. Returns `None` when the result would become too large: references to paths and
/// parameters are replaced by copies.
pub(super) fn upgrade(mut root: Value, limits: ImportLimits) -> Option<Value> {
    let mut upgraded = converted(&root, limits)?;
    for field in KEPT_FIELDS {
        let kept = root.get_mut(field).map(Value::take);
        upgraded.extend(kept.map(|value| (field.to_owned(), value)));
    }
    Some(Value::Object(upgraded))
}

/// Returns the parts that have another form in version 3.
fn converted(root: &Value, limits: ImportLimits) -> Option<Map<String, Value>> {
    let left = Cell::new(limits.copied_bytes());
    let conversion = Conversion { root, resolver: Resolver::new(root), left };
    let mut paths = Map::new();
    for (path, path_item) in root["paths"].as_object().into_iter().flatten() {
        paths.insert(path.clone(), conversion.path_item(path_item)?);
    }
    let mut converted = Map::new();
    converted.insert("servers".to_owned(), servers(root, root));
    converted.insert("paths".to_owned(), Value::Object(paths));
    let mut schemes = Map::new();
    for (name, scheme) in root["securityDefinitions"].as_object().into_iter().flatten() {
        conversion.copies(scheme)?;
        schemes.insert(name.clone(), security_scheme(scheme));
    }
    converted.insert("components".to_owned(), json!({"securitySchemes": schemes}));
    Some(converted)
}

/// Returns the servers of a document, or of an operation with its own schemes.
fn servers(root: &Value, holder: &Value) -> Value {
    let base = root["basePath"].as_str().unwrap_or_default();
    let base =
        if base.is_empty() || base.starts_with('/') { base.to_owned() } else { format!("/{base}") };
    let Some(host) = root["host"].as_str().filter(|host| !host.is_empty()) else {
        let url = if base.is_empty() { "/" } else { &base };
        return json!([{"url": url}]);
    };
    let schemes = holder["schemes"].as_array().or_else(|| root["schemes"].as_array());
    let mut schemes: Vec<&str> = schemes
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|scheme| matches!(*scheme, "http" | "https"))
        .collect();
    if schemes.is_empty() {
        schemes.push("https");
    }
    schemes.sort_by_key(|scheme| *scheme != "https");
    let urls = schemes.iter().map(|scheme| json!({"url": format!("{scheme}://{host}{base}")}));
    Value::Array(urls.collect())
}

fn security_scheme(scheme: &Value) -> Value {
    match scheme["type"].as_str() {
        Some("basic") => json!({"type": "http", "scheme": "basic"}),
        Some("oauth2") => {
            let flow = match scheme["flow"].as_str() {
                Some("application") => "clientCredentials",
                Some("accessCode") => "authorizationCode",
                Some("password") => "password",
                _ => "implicit",
            };
            json!({"type": "oauth2", "flows": {flow: {
                "tokenUrl": scheme["tokenUrl"],
                "scopes": scheme["scopes"],
            }}})
        }
        _ => scheme.clone(),
    }
}

struct Conversion<'a> {
    root: &'a Value,
    resolver: Resolver<'a>,
    /// Memory that is left for copies, in bytes.
    left: Cell<usize>,
}

impl<'a> Conversion<'a> {
    /// Counts a value that is copied.
    fn copies(&self, value: &Value) -> Option<()> {
        let mut left = self.left.get();
        let fits = copy_fits(value, &mut left);
        self.left.set(left);
        fits.then_some(())
    }

    fn path_item(&self, path_item: &'a Value) -> Option<Value> {
        let followed = match self.resolver.follow(path_item) {
            Ok(followed) => followed,
            // The import reports the reference.
            Err(_) => {
                self.copies(path_item)?;
                return Some(path_item.clone());
            }
        };
        let mut upgraded = Map::new();
        for method in METHODS {
            if let Some(operation) = followed.get(method).filter(|value| value.is_object()) {
                upgraded.insert(method.to_owned(), self.operation(followed, operation)?);
            }
        }
        Some(Value::Object(upgraded))
    }

    fn operation(&self, path_item: &'a Value, operation: &'a Value) -> Option<Value> {
        let mut upgraded = Map::new();
        for field in OPERATION_FIELDS {
            self.copies(&operation[field])?;
            upgraded.extend(operation.get(field).map(|value| (field.to_owned(), value.clone())));
        }
        if operation.get("schemes").is_some() {
            upgraded.insert("servers".to_owned(), servers(self.root, operation));
        }
        let mut parameters: Vec<Value> = Vec::new();
        let mut fields: Vec<&'a Value> = Vec::new();
        let consumes = self.media_types(operation, "consumes");
        for parameter in self.parameters(path_item, operation) {
            self.copies(parameter)?;
            match parameter["in"].as_str() {
                Some("body") => {
                    for _ in &consumes {
                        self.copies(parameter)?;
                    }
                    upgraded.insert("requestBody".to_owned(), body(parameter, &consumes));
                }
                Some("formData") => fields.push(parameter),
                _ => parameters.push(converted_parameter(parameter)),
            }
        }
        if !fields.is_empty() {
            upgraded.insert("requestBody".to_owned(), form(&fields, &consumes));
        }
        upgraded.insert("parameters".to_owned(), Value::Array(parameters));
        let produces = self.media_types(operation, "produces").into_iter();
        let produces: Map<String, Value> =
            produces.map(|media_type| (media_type.to_owned(), json!({}))).collect();
        upgraded.insert("responses".to_owned(), json!({"200": {"content": produces}}));
        Some(Value::Object(upgraded))
    }

    /// Returns the parameters of an operation, and those of its path that it does not replace. A
    /// reference that leads nowhere stays as it is, and the import reports it.
    fn parameters(&self, path_item: &'a Value, operation: &'a Value) -> Vec<&'a Value> {
        let mut found: Vec<&'a Value> = Vec::new();
        for holder in [path_item, operation] {
            for declared in holder["parameters"].as_array().into_iter().flatten().take(1_000) {
                let parameter = self.resolver.follow(declared).unwrap_or(declared);
                let is_same = |other: &&'a Value| {
                    other["name"] == parameter["name"]
                        && other["in"] == parameter["in"]
                        && parameter.get("$ref").is_none()
                };
                match found.iter().position(is_same) {
                    Some(index) => found[index] = parameter,
                    None => found.push(parameter),
                }
            }
        }
        found
    }

    fn media_types(&self, operation: &'a Value, field: &str) -> Vec<&'a str> {
        let listed = operation[field].as_array().or_else(|| self.root[field].as_array());
        listed.into_iter().flatten().filter_map(Value::as_str).take(50).collect()
    }
}

fn body(parameter: &Value, consumes: &[&str]) -> Value {
    let media = json!({"schema": parameter.get("schema").cloned().unwrap_or_default()});
    let consumes = if consumes.is_empty() { &["application/json"] } else { consumes };
    let content: Map<String, Value> =
        consumes.iter().map(|media_type| ((*media_type).to_owned(), media.clone())).collect();
    json!({
        "required": parameter["required"],
        "description": parameter["description"],
        "content": content,
    })
}

fn schema(parameter: &Value) -> Value {
    let mut schema = Map::new();
    for field in SCHEMA_FIELDS {
        schema.extend(parameter.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    if parameter["type"] == "file" {
        schema.insert("type".to_owned(), Value::from("string"));
        schema.insert("format".to_owned(), Value::from("binary"));
    }
    Value::Object(schema)
}

/// Returns style and explode of a collection format.
fn collection(parameter: &Value) -> (&'static str, bool) {
    match parameter["collectionFormat"].as_str() {
        Some("multi") => ("form", true),
        Some("ssv") => ("spaceDelimited", false),
        Some("tsv") => ("tabDelimited", false),
        Some("pipes") => ("pipeDelimited", false),
        _ => ("form", false),
    }
}

fn converted_parameter(parameter: &Value) -> Value {
    if parameter.get("$ref").is_some() {
        return parameter.clone();
    }
    let mut converted = Map::new();
    for field in ["name", "in", "required", "description"] {
        converted.extend(parameter.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    converted.insert("schema".to_owned(), schema(parameter));
    if parameter["in"] == "query" {
        let (style, explode) = collection(parameter);
        converted.insert("style".to_owned(), Value::from(style));
        converted.insert("explode".to_owned(), Value::from(explode));
    }
    Value::Object(converted)
}

/// Returns the body that form parameters make.
fn form(fields: &[&Value], consumes: &[&str]) -> Value {
    let (mut properties, mut encoding) = (Map::new(), Map::new());
    let mut required = Vec::new();
    for field in fields {
        let Some(name) = field["name"].as_str() else { continue };
        properties.insert(name.to_owned(), schema(field));
        if field["type"] == "array" {
            let (style, explode) = collection(field);
            encoding.insert(name.to_owned(), json!({"style": style, "explode": explode}));
        }
        if field["required"] == true {
            required.push(name);
        }
    }
    let has_file = fields.iter().any(|field| field["type"] == "file");
    let accepts = |media_type: &str| consumes.contains(&media_type);
    let (url_encoded, multipart) = ("application/x-www-form-urlencoded", "multipart/form-data");
    let media_type = if has_file || (accepts(multipart) && !accepts(url_encoded)) {
        multipart
    } else {
        url_encoded
    };
    json!({
        "required": !required.is_empty(),
        "content": {media_type: {
            "schema": {"type": "object", "properties": properties, "required": required},
            "encoding": encoding,
        }},
    })
}
