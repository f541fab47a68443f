//! Bodies of operations, as a document declares them.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde_json::{Value, json};

use super::{
    body_content::{BodyForm, Field, MediaKind},
    keywords,
    parameters::settings,
    schema::{SchemaProblem, Schemas, Translated},
    style::Style,
};

/// Maximum number of fields of a form.
const MAX_FIELDS: usize = 1_000;

/// The body of an operation.
pub(super) struct Body {
    pub(super) form: BodyForm,
    pub(super) schema: Translated,
    pub(super) required: bool,
}

/// Returns the body of an operation, if it has one.
///
/// # Errors
/// Returns the reason why the operation cannot be called.
pub(super) fn body<'a>(
    schemas: &mut Schemas<'a>,
    operation: &'a Value,
    method: &str,
) -> Result<Option<Body>, String> {
    let Some(declared) = operation.get("requestBody").filter(|body| body.is_object()) else {
        return Ok(None);
    };
    let declared = schemas.resolver.follow(declared).map_err(|error| format!("it {error}"))?;
    let required = declared["required"] == true;
    // Servers need not read the body of a request that is not expected to have one.
    if !required && matches!(method, "GET" | "HEAD") {
        return Ok(None);
    }
    let content = declared["content"].as_object();
    let best = content.into_iter().flatten().min_by_key(|(media_type, _)| rank(media_type));
    let Some((media_type, media)) = best else { return Ok(None) };
    let media = schemas.resolver.follow(media).map_err(|error| format!("it {error}"))?;
    let (form, mut schema) = encoding(schemas, media_type, media)?;
    let description = declared.get("description").and_then(keywords::description);
    if let Some(description) = description {
        schema.describe_if_absent(&description);
    }
    Ok(Some(Body { form, schema, required }))
}

/// Orders media types by preference. Equal ones are taken in alphabetical order.
fn rank(media_type: &str) -> u32 {
    let is_exact = media_type.trim().eq_ignore_ascii_case("application/json");
    let is_range = media_type.contains('*');
    match MediaKind::new(media_type) {
        MediaKind::Json if is_exact => 0,
        MediaKind::Json if !is_range => 1,
        MediaKind::Json => 2,
        MediaKind::Form => 3,
        MediaKind::Multipart => 4,
        MediaKind::Text => 5,
        MediaKind::Bytes => 6,
        MediaKind::Xml => 7,
        MediaKind::Unsupported => 8,
    }
}

fn encoding<'a>(
    schemas: &mut Schemas<'a>,
    media_type: &str,
    media: &'a Value,
) -> Result<(BodyForm, Translated), String> {
    let schema = media.get("schema");
    let shown = |problem: SchemaProblem| problem.to_string();
    Ok(match MediaKind::new(media_type) {
        MediaKind::Json if schema.is_some_and(|schema| is_binary(schemas, schema)) => {
            (BodyForm::Bytes { content_type: content_type(media_type, OCTETS)? }, bytes_schema())
        }
        MediaKind::Json => {
            let form = BodyForm::Json { content_type: content_type(media_type, JSON)? };
            (form, translate(schemas, schema).map_err(shown)?)
        }
        MediaKind::Form => {
            let (fields, schema) = fields(schemas, media, schema, false)?;
            (BodyForm::Form { fields }, schema)
        }
        MediaKind::Multipart => {
            let (fields, schema) = fields(schemas, media, schema, true)?;
            (BodyForm::Multipart { fields }, schema)
        }
        MediaKind::Text | MediaKind::Xml => {
            let content_type = content_type(media_type, "text/plain")?;
            let schema = json!({"type": "string", "description": format!(
                "Text of type {}", content_type.to_str().unwrap_or_default())});
            (BodyForm::Text { content_type }, Translated::plain(schema))
        }
        MediaKind::Bytes => {
            (BodyForm::Bytes { content_type: content_type(media_type, OCTETS)? }, bytes_schema())
        }
        MediaKind::Unsupported => {
            return Err("its body is multipart without form fields".to_owned());
        }
    })
}

const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

/// Returns the content type of a body. A range becomes the default.
fn content_type(media_type: &str, default: &'static str) -> Result<HeaderValue, String> {
    if media_type.contains('*') || !media_type.contains('/') {
        return Ok(HeaderValue::from_static(default));
    }
    HeaderValue::from_str(media_type.trim())
        .map_err(|_| "the content type of its body is not valid".to_owned())
}

fn bytes_schema() -> Translated {
    Translated::plain(json!({
        "type": "string",
        "contentEncoding": "base64",
        "description": "Bytes in base64",
    }))
}

fn file_schema() -> Translated {
    Translated::plain(json!({
        "type": "object",
        "description": "A file",
        "properties": {
            "base64": {"type": "string", "contentEncoding": "base64"},
            "filename": {"type": "string"},
            "contentType": {"type": "string"},
        },
        "required": ["base64"],
        "additionalProperties": false,
    }))
}

fn translate<'a>(
    schemas: &mut Schemas<'a>,
    schema: Option<&'a Value>,
) -> Result<Translated, SchemaProblem> {
    schema.map_or_else(|| Ok(Translated::plain(json!({}))), |schema| schemas.translate(schema))
}

/// Returns whether a schema stands for bytes.
fn is_binary<'a>(schemas: &Schemas<'a>, schema: &'a Value) -> bool {
    let schema = schemas.resolver.follow(schema).unwrap_or(schema);
    let is_text = schema.get("type").is_none_or(|kind| kind == "string");
    let media = schema["contentMediaType"].as_str().map(MediaKind::new);
    let has_media = media == Some(MediaKind::Bytes) && schema.get("contentEncoding").is_none();
    is_text && (schema["format"] == "binary" || has_media)
}

/// Returns the fields of a form, and the schema of the object that holds them.
fn fields<'a>(
    schemas: &mut Schemas<'a>,
    media: &'a Value,
    schema: Option<&'a Value>,
    is_multipart: bool,
) -> Result<(BTreeMap<String, Field>, Translated), String> {
    let mut fields = BTreeMap::new();
    for (name, encoding) in media["encoding"].as_object().into_iter().flatten().take(MAX_FIELDS) {
        fields.insert(name.clone(), field(encoding));
    }
    let Some(schema) = schema else { return Ok((fields, Translated::plain(json!({})))) };
    let mut properties: BTreeMap<&'a str, &'a Value> = BTreeMap::new();
    schemas
        .for_each_property(schema, &mut |schemas, name, property| {
            if !schemas.is_read_only(property) && properties.len() < MAX_FIELDS {
                properties.entry(name).or_insert(property);
            }
        })
        .map_err(|problem| problem.to_string())?;
    if !is_multipart || properties.is_empty() {
        let schema = schemas.translate(schema).map_err(|problem| problem.to_string())?;
        return Ok((fields, schema));
    }
    let mut translated = Vec::with_capacity(properties.len());
    for (name, property) in &properties {
        let followed = schemas.resolver.follow(property).unwrap_or(property);
        let is_list = followed["type"] == "array" && is_binary(schemas, &followed["items"]);
        let is_file = is_list || is_binary(schemas, property);
        let schema = match (is_list, is_file) {
            (true, _) => file_schema().into_array(),
            (false, true) => file_schema(),
            (false, false) => schemas.translate(property).map_err(|problem| problem.to_string())?,
        };
        fields.entry((*name).to_owned()).or_default().is_file = is_file;
        translated.push(((*name).to_owned(), schema));
    }
    let required = schemas.required_names(schema);
    let required = required.into_iter().filter(|name| properties.contains_key(name));
    let required: Vec<String> = required.map(ToOwned::to_owned).collect();
    Ok((fields, Translated::object(translated, &required)))
}

/// Reads an encoding object.
fn field(encoding: &Value) -> Field {
    let is_given = |name: &str| encoding.get(name).is_some();
    let has_style = ["style", "explode", "allowReserved"].into_iter().any(is_given);
    let style = encoding["style"].as_str().and_then(Style::from_name).unwrap_or(Style::Form);
    let content_type = encoding["contentType"].as_str().map(|types| {
        let first = types.split(',').next().unwrap_or(types).trim();
        first.to_owned()
    });
    let is_valid = |kind: &String| {
        !kind.contains('*') && HeaderValue::from_str(kind).is_ok() && !kind.is_empty()
    };
    Field {
        style: has_style.then(|| settings(style, encoding.as_object())),
        content_type: content_type.filter(is_valid),
        is_file: false,
    }
}
