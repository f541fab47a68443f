//! Documents that try to exhaust the importer or to mislead its requests.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{
    super::{Document, DocumentError, ImportLimits, ImportOptions, MAX_OPERATIONS, import},
    argument, document, imported, object, only, reason,
};

/// Time that an import may take in a debug build on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn with_body(schemas: Value) -> Value {
    let schema = json!({"$ref": "#/components/schemas/A"});
    let body = json!({"content": {"application/json": {"schema": schema}}});
    let mut document = document("post", "/x", json!({"requestBody": body}));
    document["components"] = json!({"schemas": schemas});
    document
}

#[test]
fn endless_references_accept_anything() {
    let itself = json!({"$ref": "#/components/schemas/A"});
    for schemas in [
        json!({"A": itself}),
        json!({"A": {"allOf": [{"$ref": "#/components/schemas/B"}]}, "B": {"anyOf": [itself]}}),
    ] {
        let operation = only(&with_body(schemas));
        let text = argument(&operation, "body").to_string();
        assert!(operation.is_shortened() && !text.contains("$ref"), "{text}");
    }
}

#[test]
fn recursive_schema_is_kept_once() {
    let list = json!({"type": "array", "items": {"$ref": "#/components/schemas/A"}});
    let schema = json!({"type": "object", "properties": {"children": list}});
    let operation = only(&with_body(json!({"A": schema})));
    let definitions = operation.registration(None).parameters["$defs"].clone();
    assert_eq!(definitions["A"]["properties"]["children"]["items"], json!({"$ref": "#/$defs/A"}));
    assert!(!operation.is_shortened());
}

#[test]
fn expansion_is_bounded() {
    let mut schemas = Map::new();
    for level in 0..30 {
        let next = json!({"$ref": format!("#/components/schemas/L{}", level + 1)});
        let fields: Map<String, Value> =
            ["a", "b", "c", "d"].map(|name| (name.to_owned(), next.clone())).into_iter().collect();
        let schema =
            json!({"type": "object", "properties": fields, "anyOf": [next, next, next, next]});
        schemas.insert(format!("L{level}"), schema);
    }
    schemas.insert("L30".to_owned(), json!({"type": "string"}));
    schemas.insert("A".to_owned(), json!({"$ref": "#/components/schemas/L0"}));
    let started = Instant::now();
    let imported = imported(&with_body(Value::Object(schemas)), &ImportOptions::default());
    assert_eq!(imported.operations.len() + imported.skipped.len(), 1);
    let bytes =
        imported.operations.iter().map(|one| one.registration(None).parameters.to_string().len());
    assert!(bytes.max().unwrap_or_default() <= 48 * 1024);
    assert!(imported.skipped.iter().all(|one| one.reason.contains("10000 subschemas")));
    assert!(started.elapsed() < LONG);
}

#[test]
fn deep_optional_properties_of_a_large_schema_accept_anything() {
    let field = |depth: usize| json!({"type": "string", "description": "x".repeat(280), "maxLength": depth});
    let mut schema = json!({"type": "object"});
    for depth in 0..6 {
        let mut fields: Vec<_> = (0..30).map(|index| (format!("f{index}"), field(depth))).collect();
        fields.push(("next".to_owned(), schema));
        let fields: Map<String, Value> = fields.into_iter().collect();
        schema = json!({"type": "object", "properties": fields, "required": ["f0"]});
    }
    let operation = only(&with_body(json!({"A": schema})));
    let text = operation.registration(None).parameters.to_string();
    assert!(text.len() <= 48 * 1024 && text.contains("f29"), "{}", text.len());
    assert!(operation.is_shortened());
}

#[test]
fn enumerations_are_bounded() {
    let values: Vec<_> = (0..100_000).map(|index| format!("value{index}")).collect();
    let operation = only(&with_body(json!({"A": {"type": "string", "enum": values}})));
    assert_eq!(
        argument(&operation, "body"),
        json!({"type": "string", "description":
            "One of 100000 values: \"value0\", \"value1\", \"value2\", …"})
    );
}

#[test]
fn operations_are_bounded() {
    let shared = json!({"get": {"responses": {}}});
    let mut paths: Map<String, Value> = (0..100_000)
        .map(|index| (format!("/p{index:06}"), json!({"$ref": "#/components/pathItems/S"})))
        .collect();
    paths.insert("/p000000".to_owned(), json!({"$ref": "other.yaml"}));
    let mut document = document("get", "/x", json!({}));
    document["paths"] = Value::Object(paths);
    document["components"] = json!({"pathItems": {"S": shared}});
    let document = Document::from_value(document).expect("a document");
    let started = Instant::now();
    let filter = ["/p00000*".to_owned()].to_vec();
    let mut options = ImportOptions::default();
    options.include.paths = filter;
    let imported = import(&document, &options);
    assert_eq!(imported.operations.len(), 9);
    assert_eq!(imported.excluded, MAX_OPERATIONS - 9);
    let reasons: Vec<_> = imported.skipped.iter().map(|one| one.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "it refers to another document (other.yaml); bundle the documents into one",
            "the document has more than 20000 operations; remove paths from it",
        ]
    );
    assert!(started.elapsed() < LONG);
}

#[test]
fn copies_of_a_path_are_bounded() {
    let shared = json!({"get": {"description": "x".repeat(100_000)}});
    let paths: Map<String, Value> =
        (0..5_000).map(|index| (format!("/p{index}"), json!({"$ref": "#/x-shared"}))).collect();
    let document = json!({"swagger": "2.0", "x-shared": shared, "paths": paths});
    assert!(matches!(Document::from_value(document), Err(DocumentError::TooManyValues { .. })));
}

#[test]
fn unusable_operations_have_a_reason() {
    let none = ImportOptions::default();
    let check = |path: &str, operation: Value, expected: &str| {
        let reason = reason(&document("get", path, operation), &none);
        assert!(reason.contains(expected), "{path}: {reason}");
    };
    check("x", json!({}), "does not begin with \"/\"");
    check("/a/../b", json!({}), "contains the segment");
    check("/%2e%2E/b", json!({}), "contains the segment");
    check(&format!("/{}", "x".repeat(5000)), json!({}), "longer than 4096 bytes");
    let parameter =
        |schema: Value| json!({"parameters": [{"name": "q", "in": "query", "schema": schema}]});
    check("/x", parameter(json!({"$ref": "https://evil.test/a"})), "another document");
    check("/x", parameter(json!({"$ref": "#/nowhere"})), "does not exist");
    check(
        "/x",
        json!({"parameters": [{"$ref": "#/paths/~1x/get/parameters/0"}]}),
        "refers to itself",
    );
    check(
        "/x",
        json!({"parameters": [{"name": "b", "in": "body", "required": true}]}),
        "is unknown",
    );
    check("/x", json!({"servers": [{"url": "file:///etc/passwd"}]}), "neither https nor http");
    check("/x", json!({"servers": [{"url": "https://u:p@a.test"}]}), "has a user");
    check("/x", json!({"servers": [{"url": "http://a.test"}]}), "uses http");
    let content = json!({"required": true, "content": {"multipart/mixed": {}}});
    check("/x", json!({"requestBody": content}), "multipart without form fields");
}

#[test]
fn documents_are_bounded() {
    let parse = |text: &str| text.parse::<Document>().map(|_| ());
    let deep = format!("{{\"openapi\": \"3.1.0\", \"x\": {}{}}}", "[".repeat(500), "]".repeat(500));
    assert_eq!(parse(&deep), Err(DocumentError::TooDeep));
    let nested =
        |depth: usize| format!("openapi: 3.1.0\nx: {}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(parse(&nested(60)), Ok(()));
    for depth in [70, 200, 100_000] {
        assert!(matches!(parse(&nested(depth)), Err(DocumentError::Syntax { format: "YAML", .. })));
    }
    let mut value = json!({"openapi": "3.1.0"});
    for _ in 0..200 {
        value = object(&[("x", value)]);
    }
    assert!(matches!(Document::from_value(value), Err(DocumentError::TooDeep)));
    let mut bomb = "openapi: 3.1.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let previous = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    assert!(matches!(parse(&bomb), Err(DocumentError::Syntax { format: "YAML", .. })));
    let long =
        format!("openapi: 3.1.0\na: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(400));
    assert!(matches!(parse(&long), Err(DocumentError::Syntax { format: "YAML", .. })));
    let small = ImportLimits::for_memory(64 << 20);
    let objects =
        format!("{{\"openapi\": \"3.1.0\", \"x\": [{}{{}}]}}", "{\"a\":0},".repeat(40_000));
    assert!(parse(&objects).is_ok());
    let refused = Document::read(&objects, small).map(|_| ());
    assert!(
        matches!(refused, Err(DocumentError::TooManyValues { max_mib: 16, .. })),
        "{refused:?}"
    );
    let listed = format!("openapi: 3.1.0\nx: [{}]", "0, ".repeat(100_000));
    assert!(parse(&listed).is_ok());
    assert!(Document::read(&listed, small).is_err());
    let large = " ".repeat(ImportLimits::default().document_bytes() + 1);
    assert!(matches!(parse(&large), Err(DocumentError::TooLarge { .. })));
}

#[test]
fn texts_are_cleaned_and_bounded() {
    let text = format!("a\u{1b}[31mb\u{202e}c{}", "x".repeat(50_000));
    let operation = json!({"summary": text, "parameters": [
        {"name": "q", "in": "query", "description": text, "schema": {"type": "string"}}]});
    let operation = only(&document("get", "/x", operation));
    let tool = operation.registration(None);
    assert!(tool.description.starts_with("abc") && tool.description.chars().count() <= 1024);
    let description = argument(&operation, "q")["description"].clone();
    assert!(description.as_str().expect("text").chars().count() <= 300);
}

/// Tags of Unicode can spell sentences that a model reads and a person does not see.
const HIDDEN: &str = "a\u{e0069}\u{e0067}\u{e006e}";

#[test]
fn values_with_hidden_characters_are_dropped() {
    for schema in [
        json!({"enum": ["x", HIDDEN]}),
        json!({"enum": ["x", {HIDDEN: 1}]}),
        json!({"const": HIDDEN}),
        json!({"default": [HIDDEN]}),
        json!({"pattern": HIDDEN}),
        json!({"format": "a\u{1b}]0;title\u{7}"}),
    ] {
        let parameter = json!({"name": "q", "in": "query", "schema": schema});
        let operation = only(&document("get", "/x", json!({"parameters": [parameter]})));
        assert_eq!(argument(&operation, "q"), json!({}), "{schema}");
    }
    let parameter = json!({"name": "q", "in": "query", "schema": {"enum": ["two\nlines", "x"]}});
    let operation = only(&document("get", "/x", json!({"parameters": [parameter]})));
    assert_eq!(argument(&operation, "q")["enum"][0], "two\nlines");
}

#[test]
fn names_with_hidden_characters_reach_no_model() {
    let of = |schema: Value| with_body(json!({"A": schema}));
    for schema in [
        json!({"type": "object", "properties": {HIDDEN: {"type": "string"}}, "required": [HIDDEN]}),
        json!({"type": "object", "required": [HIDDEN]}),
        json!({"patternProperties": {HIDDEN: {}}}),
        json!({"oneOf": [{"$ref": "#/components/schemas/A/x"}], "x": {},
            "discriminator": {"propertyName": HIDDEN}}),
    ] {
        let reason = reason(&of(schema.clone()), &ImportOptions::default());
        assert!(reason.contains("hidden characters"), "{schema}: {reason}");
    }
    let parameters = json!([{"name": HIDDEN, "in": "query"}, {"name": "bash", "in": "query"}]);
    let operation = json!({"operationId": HIDDEN, "parameters": parameters});
    let tool = only(&document("get", "/x", operation)).registration(None);
    let text = serde_json::to_string(&tool).expect("JSON");
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
}

/// Names of imported tools begin with `rest__`, which no other family has.
#[test]
fn operation_cannot_take_the_name_of_another_tool() {
    for id in ["bash", "web_search", "mcp__files__read", "rest__x", "../bash", " bash "] {
        let tool = only(&document("get", "/x", json!({"operationId": id}))).registration(None);
        assert!(tool.name.starts_with("rest__"), "{id}: {}", tool.name);
        assert!(tool.name.len() <= 64, "{}", tool.name);
    }
}
