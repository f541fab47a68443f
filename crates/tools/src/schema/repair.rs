//! Repair of schemas that were written for other dialects.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::subschemas;

/// Dialects that schemas may name.
const DIALECTS: [&str; 5] = [
    "draft-04/schema",
    "draft-06/schema",
    "draft-07/schema",
    "draft/2019-09/schema",
    "draft/2020-12/schema",
];

/// Rewrites what a schema of another dialect says into JSON Schema 2020-12, where that has one meaning.
///
/// - An unknown `$schema` is removed.
/// - `"minimum": 1, "exclusiveMinimum": true` becomes `"exclusiveMinimum": 1`, except in draft 4.
/// - `"required": true` in a property becomes an entry in the list of its object.
/// - `"type": "any"`, keywords with the value null, and repeated names in `required` are removed.
pub fn repair(schema: &mut Value) {
    let is_draft_4 = schema["$schema"].as_str().is_some_and(|name| name.contains("/draft-04/"));
    repair_schema(schema, !is_draft_4, 0);
}

/// Nesting at which repairs end. Such a schema is rejected anyway.
const MAX_NESTING: u32 = 128;

fn repair_schema(schema: &mut Value, numeric_bounds: bool, nesting: u32) {
    let Value::Object(members) = schema else { return };
    if nesting > MAX_NESTING {
        return;
    }
    members.retain(|keyword, value| !value.is_null() || matches!(&**keyword, "const" | "default"));
    // Its object has read it already; outside of properties it has no meaning.
    if members.get("required").is_some_and(Value::is_boolean) {
        members.remove("required");
    }
    if members.get("$schema").is_some_and(|dialect| !is_known_dialect(dialect)) {
        members.remove("$schema");
    }
    if numeric_bounds {
        for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")]
        {
            if let Some(&Value::Bool(is_exclusive)) = members.get(exclusive) {
                members.remove(exclusive);
                let bound = if is_exclusive { members.remove(bound) } else { None };
                members.extend(bound.map(|bound| (exclusive.to_owned(), bound)));
            }
        }
    }
    if members.get("type").is_some_and(|kind| kind == "any") {
        members.remove("type");
    }
    repair_required(members);
    subschemas::for_each_mut(members, &mut |_, inner| {
        repair_schema(inner, numeric_bounds, nesting + 1);
    });
}

/// Moves `required` of properties to the list of their object.
fn repair_required(members: &mut Map<String, Value>) {
    let mut required: Vec<String> = Vec::new();
    if let Some(Value::Object(properties)) = members.get("properties") {
        let is_required = |property: &Value| property["required"] == true;
        required.extend(
            properties.iter().filter(|(_, value)| is_required(value)).map(|(name, _)| name.clone()),
        );
    }
    match members.get_mut("required") {
        Some(Value::Array(listed)) => {
            listed.extend(required.into_iter().map(Value::from));
            let mut seen = BTreeSet::new();
            listed.retain(|name| name.as_str().is_none_or(|name| seen.insert(name.to_owned())));
        }
        None if !required.is_empty() => {
            members.insert("required".to_owned(), Value::from(required));
        }
        _ => {}
    }
}

fn is_known_dialect(dialect: &Value) -> bool {
    let name = dialect.as_str().unwrap_or_default();
    let name = name.strip_prefix("http://").or_else(|| name.strip_prefix("https://"));
    let name = name.and_then(|name| name.strip_prefix("json-schema.org/"));
    name.is_some_and(|name| DIALECTS.contains(&name.trim_end_matches('#')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::ArgumentSchema;

    #[expect(clippy::needless_pass_by_value, reason = "the cases below read better without `&`")]
    fn check(mut schema: Value, expected: Value) {
        repair(&mut schema);
        assert_eq!(schema, expected);
        ArgumentSchema::compile(&schema).unwrap();
    }

    #[test]
    fn boolean_bounds_become_numbers() {
        check(
            json!({"properties": {"n": {"minimum": 1, "exclusiveMinimum": true, "maximum": 9,
                "exclusiveMaximum": false}}}),
            json!({"properties": {"n": {"exclusiveMinimum": 1, "maximum": 9}}}),
        );
        let draft_4 = json!({"$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"n": {"minimum": 1, "exclusiveMinimum": true}}});
        check(draft_4.clone(), draft_4);
    }

    #[test]
    fn required_properties_are_listed_by_their_object() {
        check(
            json!({"required": ["a", "a"], "properties": {"a": {"required": false},
                "b": {"required": true, "properties": {"c": {"required": true}}}},
                "$defs": {"d": {"items": {"required": true}}}}),
            json!({"required": ["a", "b"], "properties": {"a": {},
                "b": {"required": ["c"], "properties": {"c": {}}}},
                "$defs": {"d": {"items": {}}}}),
        );
    }

    #[test]
    fn unknown_dialect_and_empty_keywords_are_removed() {
        check(
            json!({"$schema": "https://example.com/own", "type": "object", "required": null,
                "properties": {"a": {"type": "any", "default": null}}}),
            json!({"type": "object", "properties": {"a": {"default": null}}}),
        );
        let known = json!({"$schema": "http://json-schema.org/draft-07/schema#"});
        check(known.clone(), known);
    }
}
