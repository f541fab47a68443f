//! The keywords of JSON Schema that hold other schemas.

use serde_json::{Map, Value};

/// The form in which a keyword holds its schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// One schema, or a list of them.
    Direct,
    /// An object of schemas by name.
    Named,
}

/// Keywords whose schemas apply only where a reference names them.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

fn holder(keyword: &str) -> Option<Holder> {
    match keyword {
        "additionalItems"
        | "additionalProperties"
        | "allOf"
        | "anyOf"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "items"
        | "not"
        | "oneOf"
        | "prefixItems"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Some(Holder::Direct),
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties"
        | "properties" => Some(Holder::Named),
        _ => None,
    }
}

/// Returns `true` for keywords that list alternatives for one instance.
pub(super) fn is_in_place_list(keyword: &str) -> bool {
    matches!(keyword, "allOf" | "anyOf" | "oneOf")
}

/// Returns the schemas that a schema applies, without definitions.
pub(super) fn applied(schema: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    held(schema).filter(|(keyword, _)| !DEFINITIONS.contains(keyword)).map(|(_, held)| held)
}

/// Returns all schemas in a schema with their keywords, including definitions.
pub(super) fn held(schema: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    schema.iter().flat_map(|(keyword, value)| {
        let held: Box<dyn Iterator<Item = &Value>> = match (holder(keyword), value) {
            (Some(Holder::Direct), Value::Array(list)) => Box::new(list.iter()),
            (Some(Holder::Direct), one) => Box::new(std::iter::once(one)),
            // `dependencies` also holds lists of names.
            (Some(Holder::Named), Value::Object(named)) => {
                Box::new(named.values().filter(|value| !value.is_array()))
            }
            _ => Box::new(std::iter::empty()),
        };
        held.map(move |value| (keyword.as_str(), value))
    })
}

/// Calls `visit` with each schema in a schema and its keyword, including definitions.
pub(super) fn for_each_mut(
    schema: &mut Map<String, Value>,
    visit: &mut dyn FnMut(&str, &mut Value),
) {
    for (keyword, value) in schema.iter_mut() {
        match (holder(keyword), value) {
            (Some(Holder::Direct), Value::Array(list)) => {
                list.iter_mut().for_each(|held| visit(keyword, held));
            }
            (Some(Holder::Direct), one) => visit(keyword, one),
            (Some(Holder::Named), Value::Object(named)) => {
                named
                    .values_mut()
                    .filter(|value| !value.is_array())
                    .for_each(|held| visit(keyword, held));
            }
            _ => {}
        }
    }
}
