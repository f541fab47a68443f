//! Tests of schemas that are large, deep, recursive or of other dialects.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rockbot_contracts::{Executed, ToolErrorCode};
use serde_json::{Value, json};

use super::*;
use crate::{
    ToolFailure,
    layers::{CallService, RawArguments, Validate},
    testing::{call_with_schema, service},
};

/// Definitions d0 to dN, each with four references to the next.
fn exploding(definitions: usize) -> Value {
    let mut defs = serde_json::Map::new();
    for number in 0..definitions {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        defs.insert(format!("d{number}"), json!({"anyOf": [next, next, next, next]}));
    }
    defs.insert(format!("d{definitions}"), json!({"type": "string"}));
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// A schema whose evaluation doubles with each level of the arguments.
fn recursive() -> Value {
    let inner = json!({"properties": {"x": {"$ref": "#/$defs/d"}}, "required": ["y"]});
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d"}},
        "$defs": {"d": {"anyOf": [inner, inner, inner]}}})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"x": inner}))
}

async fn validate(schema: &Value, arguments: &Value) -> Result<Value, ToolFailure> {
    let accepted = std::sync::Mutex::new(None);
    let layer = Validate::new(service(|call| {
        let RawArguments::Valid(value) = call.arguments else { panic!("not validated") };
        accepted.lock().unwrap().replace(value);
        async { Ok(crate::ToolResult::text("")) }
    }));
    layer.call(call_with_schema(schema.clone(), &arguments.to_string())).await?;
    Ok(accepted.lock().unwrap().take().expect("validated arguments"))
}

#[test]
fn exploding_schema_is_rejected_at_once() {
    let started = Instant::now();
    assert_eq!(ArgumentSchema::compile(&exploding(30)).unwrap_err(), SchemaError::TooLarge);
    ArgumentSchema::compile(&exploding(6)).unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn long_chains_of_references_are_rejected() {
    for reference in ["#/$defs/d", "#a"] {
        let mut defs = serde_json::Map::new();
        for number in 0..1000 {
            let next = format!("{reference}{}", number + 1);
            defs.insert(
                format!("d{number}"),
                json!({"$anchor": format!("a{number}"), "$ref": next}),
            );
        }
        let last = json!({"$anchor": "a1000"});
        defs.insert("d1000".to_owned(), last);
        let schema = json!({"$defs": defs, "properties": {"x": {"$ref": format!("{reference}0")}}});
        assert_eq!(ArgumentSchema::compile(&schema).unwrap_err(), SchemaError::TooNested);
    }
    let deep = (0..200).fold(json!({}), |inner, _| json!({"properties": {"x": inner}}));
    assert_eq!(ArgumentSchema::compile(&deep).unwrap_err(), SchemaError::TooNested);
    let usual = (0..60).fold(json!({}), |inner, _| json!({"properties": {"x": inner}}));
    ArgumentSchema::compile(&usual).unwrap();
}

#[test]
fn references_out_of_the_schema_are_rejected_by_name() {
    for reference in ["https://example.com/a.json", "file:///etc/passwd", "other.json#/$defs/x"] {
        let schema = json!({"properties": {"x": {"$ref": reference}}});
        let error = ArgumentSchema::compile(&schema).unwrap_err();
        assert!(matches!(error, SchemaError::External { .. }), "{error}");
        assert!(error.to_string().contains(reference), "{error}");
    }
    let schema = json!({"properties": {"x": {"$ref": "#/$defs/missing"}}});
    let error = ArgumentSchema::compile(&schema).unwrap_err();
    assert!(matches!(error, SchemaError::Unresolved { .. }), "{error}");
}

#[test]
fn usual_references_are_accepted() {
    let target = json!({"type": "string"});
    for schema in [
        json!({"definitions": {"a b": target}, "properties": {"x": {"$ref": "#/definitions/a%20b"}}}),
        json!({"$id": "https://example.com/t", "$defs": {"a": target},
            "properties": {"x": {"$ref": "https://example.com/t#/$defs/a"}}}),
        json!({"$defs": {"a": {"$anchor": "here", "type": "string"}},
            "properties": {"x": {"$ref": "#here"}}}),
        json!({"components": {"schemas": {"a": target}},
            "properties": {"x": {"$ref": "#/components/schemas/a"}}}),
        json!({"properties": {"x": {"type": "string", "id": "field"}, "y": {"$ref": "#"}}}),
    ] {
        ArgumentSchema::compile(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    }
}

#[tokio::test]
async fn recursive_schema_ends_within_limits() {
    let started = Instant::now();
    assert!(validate(&recursive(), &nested(2)).await.is_err(), "it requires y");
    for levels in [40, 100] {
        let failure = validate(&recursive(), &nested(levels)).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::InvalidArguments);
        assert_eq!(failure.executed(), Executed::No);
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn large_arguments_are_validated_on_a_thread() {
    let schema = json!({"type": "object", "properties": {"list": {"items": {"type": "integer"}}}});
    let mut list: Vec<Value> = (0..50_000).map(Value::from).collect();
    validate(&schema, &json!({"list": list})).await.unwrap();
    list.push(json!("text"));
    let failure = validate(&schema, &json!({"list": list})).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::InvalidArguments);
}

#[tokio::test]
async fn patterns_are_checked_only_where_they_match_in_linear_time() {
    let schema = |pattern: &str| json!({"properties": {"x": {"pattern": pattern}}});
    let text = json!({"x": "a".repeat(60)});
    assert!(validate(&schema("^b+$"), &text).await.is_err());
    for pattern in ["(?=b)^(a+)+$", r"^(a+)\1+b$", "^(a{1,999}){1,999}b$"] {
        validate(&schema(pattern), &text)
            .await
            .unwrap_or_else(|error| panic!("{pattern}: {error}"));
    }
    let by_name = json!({"patternProperties": {"(?!y)x": {"type": "integer"}},
        "additionalProperties": false});
    validate(&by_name, &text).await.unwrap();
    validate(&schema("^(a*)*$"), &json!({"x": "a".repeat(500_000)})).await.unwrap();
}

#[tokio::test]
async fn optional_nulls_are_omitted() {
    let schema = json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": ["null", "integer"]}, "b": {"type": "string"}}});
    let accepted = validate(&schema, &json!({"a": null, "b": null})).await.unwrap();
    assert_eq!(accepted, json!({"a": null}));
    assert!(validate(&schema, &json!({"b": null})).await.is_err());
}

#[tokio::test]
async fn problems_name_path_and_expectation() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}},
        "required": ["path"], "additionalProperties": false});
    let error = validate(&schema, &json!({"n": "secret", "x": 1})).await.unwrap_err().to_string();
    assert!(error.contains("/n") && error.contains("integer"), "{error}");
    assert!(error.contains("path") && error.contains('x'), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

proptest! {
    /// Repair, compilation and evaluation end, without a panic, within a few seconds.
    #[test]
    fn any_schema_and_arguments_are_handled(schema in schema(), arguments in value()) {
        let mut schema = schema;
        let started = Instant::now();
        repair(&mut schema);
        if ArgumentSchema::compile(&schema).is_ok() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = runtime.block_on(validate(&schema, &arguments));
        }
        prop_assert!(started.elapsed() < Duration::from_secs(10), "{}", schema);
    }
}

/// Generates small values.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates schemas with every kind of keyword and reference, valid or not.
fn schema() -> impl Strategy<Value = Value> {
    let reference = proptest::sample::select(vec![
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/properties/a",
        "#a",
        "x",
        "http://h/",
        "#/%",
        "#/$defs/a/not",
    ]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        reference.prop_map(|reference| json!({"$ref": reference})),
        Just(json!({"type": "string", "pattern": "^(a|b)*c"})),
        Just(json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true})),
        Just(json!({"required": true, "$anchor": "a"})),
        value().prop_map(|value| json!({"const": value})),
    ];
    let schema = leaf.prop_recursive(6, 80, 4, |inner| {
        let lists =
            proptest::sample::select(vec!["anyOf", "allOf", "oneOf", "prefixItems", "items"]);
        let ones = proptest::sample::select(vec![
            "not",
            "if",
            "then",
            "items",
            "contains",
            "additionalProperties",
            "propertyNames",
            "unevaluatedProperties",
            "unevaluatedItems",
        ]);
        let named = proptest::sample::select(vec![
            "properties",
            "$defs",
            "patternProperties",
            "dependentSchemas",
            "dependencies",
        ]);
        let many = proptest::collection::vec(inner.clone(), 0..4);
        let members = proptest::collection::btree_map("[a-c]", inner.clone(), 0..4);
        prop_oneof![
            (lists, many).prop_map(|(keyword, list)| json!({keyword: list})),
            (ones, inner.clone()).prop_map(|(keyword, one)| json!({keyword: one})),
            (named, members).prop_map(|(keyword, members)| json!({keyword: members})),
            (inner.clone(), inner).prop_map(|(one, other)| merged(one, other)),
        ]
    });
    (schema.clone(), schema).prop_map(|(schema, definition)| {
        merged(schema, json!({"$defs": {"a": definition, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}))
    })
}

fn merged(one: Value, other: Value) -> Value {
    let (Value::Object(mut one), Value::Object(other)) = (one, other) else { return json!({}) };
    one.extend(other);
    Value::Object(one)
}
