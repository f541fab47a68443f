//! Changed documents: an import never panics, and its tools are always valid.

use proptest::prelude::*;
use rockbot_tools::ArgumentSchema;
use serde_json::{Value, json};

use super::{
    super::{Document, ImportOptions, Version, import},
    document,
};
use crate::request::BuildRequest;

/// Returns a document that uses most of what an import reads.
fn base(version: Version) -> Value {
    let refer = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let parameters = json!([
        {"name": "id", "in": "path", "required": true, "style": "label", "schema": {"type": "string"}},
        {"name": "q", "in": "query", "style": "deepObject", "explode": true, "schema": refer("Pet")},
        {"name": "h", "in": "header", "schema": {"type": "array", "items": {"type": "integer"}}},
        {"name": "c", "in": "cookie", "content": {"application/json": {"schema": refer("Tree")}}},
    ]);
    let body = json!({"required": true, "description": "d", "content": {
        "multipart/form-data": {"schema": refer("Pet"), "encoding": {"name": {"style": "form"}}},
        "application/json": {"schema": refer("Tree")}}});
    let operation = json!({"operationId": "op", "summary": "s", "tags": ["t"], "parameters": parameters,
        "requestBody": body, "responses": {"200": {"content": {"application/json": {}}}}});
    let mut document = document("post", "/x/{id}/y", operation);
    document["components"] = json!({"schemas": {
        "Pet": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "nullable": true, "minLength": 1, "enum": ["a", "b"]},
            "photo": {"type": "string", "format": "binary"},
            "id": {"type": "integer", "readOnly": true, "minimum": 0, "exclusiveMinimum": true}}},
        "Tree": {"allOf": [refer("Pet"), {"properties": {"left": refer("Tree"),
            "any": {"oneOf": [refer("Pet"), refer("Tree")], "discriminator": {"propertyName": "name"}}}}]},
    }});
    document["openapi"] = json!(format!("{version}.0"));
    document
}

fn swagger() -> Value {
    json!({"swagger": "2.0", "host": "a.test", "basePath": "/b", "schemes": ["https"],
        "definitions": {"A": {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}}},
        "securityDefinitions": {"s": {"type": "oauth2", "flow": "application", "tokenUrl": "/t"}},
        "paths": {"/x/{id}": {"post": {"consumes": ["application/json"], "parameters": [
            {"name": "id", "in": "path", "type": "string", "required": true},
            {"name": "l", "in": "query", "type": "array", "items": {"type": "string"}},
            {"name": "f", "in": "formData", "type": "file"},
            {"name": "b", "in": "body", "schema": {"$ref": "#/definitions/A"}}]}}}})
}

/// Replacements, among them values that have a meaning elsewhere in a document.
fn replacement() -> impl Strategy<Value = Value> {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!([]),
        json!({}),
        json!([[]]),
        json!([null, 1, "x"]),
        json!("#/components/schemas/Tree"),
        json!("#"),
        json!({"$ref": "#/components/schemas/Tree"}),
        json!({"$ref": "#"}),
        json!({"$ref": "a#/b"}),
        json!({"$ref": "#/paths/~1x~1{id}~1y/post"}),
        json!({"type": ["object", "null", "x"]}),
        json!({"required": true}),
        json!({"properties": {"$ref": {"type": "string"}}}),
        json!({"enum": [{"$ref": "#/x"}], "default": {"$ref": 1}}),
        json!({"items": [true, false]}),
        json!({"patternProperties": {"(": {}}}),
        json!({"not": {}, "if": {}, "pattern": "["}),
        json!("\u{202e}\r\n%2e%2e/../{a}{"),
        json!("é".repeat(300)),
    ];
    prop::sample::select(values.to_vec())
}

fn places(value: &Value, pointer: &str, found: &mut Vec<String>) {
    found.push(pointer.to_owned());
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                places(inner, &format!("{pointer}/{}", escaped(name)), found);
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                places(inner, &format!("{pointer}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn mutate(document: &mut Value, at: usize, with: Value) {
    let mut found = Vec::new();
    places(document, "", &mut found);
    let pointer = &found[at % found.len()];
    if let Some(place) = document.pointer_mut(pointer) {
        *place = with;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn changed_documents_give_valid_tools_or_reasons(
        kind in 0_usize..4,
        changes in prop::collection::vec((any::<usize>(), replacement()), 1..5),
        arguments in prop::collection::vec(replacement(), 6),
    ) {
        let versions = [Version::V30, Version::V31, Version::V32];
        let mut document = versions.get(kind).map_or_else(swagger, |version| base(*version));
        for (at, with) in changes {
            mutate(&mut document, at, with);
        }
        let Ok(document) = Document::from_value(document) else { return Ok(()) };
        let imported = import(&document, &ImportOptions::default());
        for operation in &imported.operations {
            let tool = operation.registration(None);
            ArgumentSchema::compile(&tool.parameters).expect("a valid schema");
            prop_assert!((1..=64).contains(&tool.name.len()));
            let names = tool.parameters["properties"].as_object().expect("properties").keys();
            let given = names.cloned().zip(arguments.iter().cloned()).collect();
            if let Ok(request) = operation.request(&given) {
                prop_assert_eq!(request.url.scheme(), "https");
            }
        }
        prop_assert!(imported.skipped.iter().all(|skipped| !skipped.reason.is_empty()));
    }

    #[test]
    fn text_is_read_or_refused(text in ".{0,200}") {
        let text = format!("openapi: 3.1.0\n{text}");
        if let Ok(document) = text.parse::<Document>() {
            let imported = import(&document, &ImportOptions::default());
            prop_assert!(imported.operations.is_empty());
        }
    }
}
