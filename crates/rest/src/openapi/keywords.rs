//! Keywords of JSON Schema that are kept, and the form of their values.
//!
//! All kept keywords are monotonic: a subschema that accepts more makes its schema accept more. So
//! dropping a keyword, or replacing a subschema by one that accepts everything, never makes a schema
//! reject arguments that the API would accept. `not`, `if`, `unevaluatedProperties`, `maxContains` and
//! exclusive alternatives do not have this property; the API checks them itself.

use std::collections::BTreeSet;

use rockbot_contracts::outside_text;
use serde_json::{Map, Number, Value};

/// Maximum length of a nested description, in characters.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 300;
/// Maximum length of a regular expression or a format, in bytes.
const MAX_PATTERN_BYTES: usize = 500;
/// Maximum size of a default value or a constant, in bytes.
const MAX_VALUE_BYTES: usize = 1024;
/// Maximum number and size of the values of an enumeration.
const MAX_ENUM_VALUES: usize = 500;
const MAX_ENUM_BYTES: usize = 8 * 1024;

/// Maximum length of the beginning of a text that is read, in bytes.
const MAX_READ_BYTES: usize = 16 * 1024;

/// Names of types.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Form of the subschemas of a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// One schema.
    One,
    /// A list of schemas for the same value.
    InPlace,
    /// A list of schemas for parts of the value.
    Parts,
    /// Schemas by name, for parts of the value.
    Named,
}

/// Returns the form of the subschemas that a keyword of the output holds, if it holds any.
pub(super) fn holder(keyword: &str) -> Option<Holder> {
    Some(match keyword {
        "additionalProperties" | "contains" | "items" | "propertyNames" => Holder::One,
        "allOf" | "anyOf" => Holder::InPlace,
        "prefixItems" => Holder::Parts,
        "patternProperties" | "properties" => Holder::Named,
        _ => return None,
    })
}

/// Returns a description for a model, if there is any text.
pub(super) fn description(text: &Value) -> Option<String> {
    let text = outside_text::plain(excerpt(text.as_str()?).trim(), MAX_DESCRIPTION_CHARS);
    (!text.is_empty()).then_some(text)
}

/// Copies the keywords without subschemas whose values have the form that JSON Schema demands, and
/// translates those of other dialects.
pub(super) fn copy_simple(from: &Map<String, Value>, to: &mut Map<String, Value>) {
    for (keyword, value) in from {
        let copied = match keyword.as_str() {
            "description" => description(value).map(Value::from),
            "default" | "const" => (is_small(value) && is_visible(value)).then(|| value.clone()),
            "pattern" | "format" | "contentEncoding" | "contentMediaType" => value
                .as_str()
                .filter(|text| text.len() <= MAX_PATTERN_BYTES && is_visible_text(text))
                .map(Value::from),
            "maxItems" | "maxLength" | "maxProperties" | "minItems" | "minLength"
            | "minProperties" => count(value),
            "maximum" | "minimum" => value.as_number().cloned().map(Value::Number),
            "multipleOf" => value.as_f64().filter(|number| *number > 0.0).map(|_| value.clone()),
            "uniqueItems" => value.as_bool().map(Value::from),
            _ => None,
        };
        to.extend(copied.map(|copied| (keyword.clone(), copied)));
    }
    copy_exclusive(from, to, "exclusiveMinimum", "minimum");
    copy_exclusive(from, to, "exclusiveMaximum", "maximum");
}

/// Translates `"minimum": 1, "exclusiveMinimum": true` to `"exclusiveMinimum": 1`.
fn copy_exclusive(
    from: &Map<String, Value>,
    to: &mut Map<String, Value>,
    exclusive: &str,
    bound: &str,
) {
    let limit = match from.get(exclusive) {
        Some(Value::Bool(true)) => to.remove(bound),
        Some(Value::Number(limit)) => Some(Value::Number(limit.clone())),
        _ => None,
    };
    to.extend(limit.map(|limit| (exclusive.to_owned(), limit)));
}

/// Returns a whole number that is not negative.
fn count(value: &Value) -> Option<Value> {
    let number = value.as_f64().filter(|number| (0.0..=1e15).contains(number))?;
    let number = number.trunc() as u64;
    Some(Value::Number(Number::from(number)))
}

/// Returns the beginning of a text, so that the cost of reading it is bounded.
pub(super) fn excerpt(text: &str) -> &str {
    let mut end = text.len().min(MAX_READ_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns whether no text and no name in a value has hidden characters: a model reads them, and the person
/// who reviews the tool does not see them. Recurses; a document's nesting is limited.
pub(super) fn is_visible(value: &Value) -> bool {
    match value {
        Value::String(text) => is_visible_text(text),
        Value::Array(list) => list.iter().all(is_visible),
        Value::Object(map) => {
            map.iter().all(|(name, inner)| is_visible_text(name) && is_visible(inner))
        }
        _ => true,
    }
}

fn is_visible_text(text: &str) -> bool {
    outside_text::stripped(text).len() == text.len()
}

fn is_small(value: &Value) -> bool {
    fits(value, &mut { MAX_VALUE_BYTES })
}

/// Subtracts the approximate size of a value, and returns whether it did not exceed the rest. Stops
/// where it does.
pub(super) fn fits(value: &Value, rest: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len() + 2,
        Value::Object(map) => map.keys().map(|name| name.len() + 4).sum(),
        _ => 5,
    };
    let Some(left) = rest.checked_sub(own) else { return false };
    *rest = left;
    match value {
        Value::Array(list) => list.iter().all(|inner| fits(inner, rest)),
        Value::Object(map) => map.values().all(|inner| fits(inner, rest)),
        _ => true,
    }
}

/// Returns the type or types of a schema, with null added where it is nullable.
pub(super) fn types(members: &Map<String, Value>, nullable: bool) -> Option<Value> {
    let mut types: Vec<&str> = match members.get("type")? {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    // An unknown type could be any of the others.
    if types.is_empty() || types.iter().any(|name| !TYPES.contains(name)) {
        return None;
    }
    types.extend(nullable.then_some("null"));
    let mut unique: Vec<&str> = Vec::new();
    for name in types {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    match unique.as_slice() {
        [one] => Some(Value::from(*one)),
        _ => Some(Value::from(unique)),
    }
}

/// Enumeration of a schema.
pub(super) enum Enumeration {
    /// The values, of the schema's type.
    Values(Vec<Value>),
    /// The values are too many; a hint for the description.
    TooLarge(String),
}

/// Returns the enumeration of a schema, unless a value has hidden characters. Values are converted to a
/// type of the schema where they were written as another one, as YAML invites to.
pub(super) fn enumeration(
    members: &Map<String, Value>,
    types: Option<&Value>,
    nullable: bool,
) -> Option<Enumeration> {
    let listed = members.get("enum")?.as_array().filter(|listed| !listed.is_empty())?;
    let rest = &mut { MAX_ENUM_BYTES };
    if listed.len() > MAX_ENUM_VALUES || !listed.iter().all(|value| fits(value, rest)) {
        let first = listed.iter().filter(|value| is_small(value)).take(3);
        let first: Vec<String> = first.map(ToString::to_string).collect();
        let first = outside_text::plain(&first.join(", "), 100);
        return Some(Enumeration::TooLarge(format!("One of {} values: {first}, …", listed.len())));
    }
    if !listed.iter().all(is_visible) {
        return None;
    }
    let has = |name: &str| match types {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(names)) => names.iter().any(|one| one == name),
        _ => false,
    };
    let mut values: Vec<Value> = Vec::with_capacity(listed.len());
    let mut unique = BTreeSet::new();
    for value in listed {
        let value = match value {
            Value::Number(_) | Value::Bool(_) if only_type(types) == Some("string") => {
                Value::from(value.to_string())
            }
            Value::String(text) if matches!(only_type(types), Some("integer" | "number")) => {
                text.parse::<Number>().map_or_else(|_| value.clone(), Value::Number)
            }
            other => other.clone(),
        };
        if unique.insert(value.to_string()) {
            values.push(value);
        }
    }
    if (nullable || has("null")) && unique.insert(Value::Null.to_string()) {
        values.push(Value::Null);
    }
    Some(Enumeration::Values(values))
}

/// Returns the only type besides null.
fn only_type(types: Option<&Value>) -> Option<&str> {
    match types? {
        Value::String(name) => Some(name),
        Value::Array(names) => {
            let mut others = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            let first = others.next();
            others.next().is_none().then_some(first).flatten()
        }
        _ => None,
    }
}
