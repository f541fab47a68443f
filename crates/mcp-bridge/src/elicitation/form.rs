//! Forms from the schemas that servers request.

use rockbot_contracts::input::{InputField, InputKind, InputOption, InputRequest};
use serde_json::{Map, Value};

/// Returns the fields of a flat object schema, in its order of properties.
///
/// # Errors
/// Why the schema cannot be shown as a form.
pub(super) fn fields(schema: &Value) -> Result<Vec<InputField>, &'static str> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Err("its schema has no properties");
    };
    if properties.len() > InputRequest::MAX_FIELDS {
        return Err("its form has too many fields");
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
    };
    properties
        .iter()
        .map(|(name, property)| {
            let property = property.as_object().ok_or("a field has no schema")?;
            Ok(InputField {
                name: name.clone(),
                title: text(property, "title"),
                description: text(property, "description"),
                required: is_required(name),
                default: property.get("default").filter(|value| !value.is_null()).cloned(),
                kind: kind(property)?,
            })
        })
        .collect()
}

fn kind(property: &Map<String, Value>) -> Result<InputKind, &'static str> {
    let number = |key: &str| property.get(key).and_then(Value::as_f64);
    let length = |key: &str| {
        let value = property.get(key).and_then(Value::as_u64);
        value.map(|value| u32::try_from(value).unwrap_or(u32::MAX))
    };
    let (minimum, maximum) = (number("minimum"), number("maximum"));
    match property.get("type").and_then(Value::as_str) {
        Some("boolean") => Ok(InputKind::Boolean),
        Some("integer") => Ok(InputKind::Number { integer: true, minimum, maximum }),
        Some("number") => Ok(InputKind::Number { integer: false, minimum, maximum }),
        Some("array") => {
            let items = property.get("items").and_then(Value::as_object);
            let options = items.and_then(options).ok_or("a list has no options")?;
            let (min_items, max_items) = (length("minItems"), length("maxItems"));
            Ok(InputKind::Choices { options, min_items, max_items })
        }
        Some("string") | None => Ok(match options(property) {
            Some(options) => InputKind::Choice { options },
            None => InputKind::Text {
                min_length: length("minLength"),
                max_length: length("maxLength"),
                format: property.get("format").and_then(Value::as_str).map(str::to_owned),
            },
        }),
        Some(_) => Err("a field has an unsupported type"),
    }
}

/// Returns the options of an enumeration: `oneOf` or `anyOf` with titles, or `enum`, with `enumNames` as the
/// titles up to 2025-06-18.
fn options(schema: &Map<String, Value>) -> Option<Vec<InputOption>> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array);
    if let Some(titled) = list("oneOf").or_else(|| list("anyOf")) {
        let options = titled.iter().map(|option| {
            let option = option.as_object()?;
            let value = option.get("const")?.as_str()?.to_owned();
            Some(InputOption { value, title: text(option, "title") })
        });
        return options.collect();
    }
    let (values, titles) = (list("enum")?, list("enumNames"));
    let title = |at: usize| titles.and_then(|titles| titles.get(at)).and_then(Value::as_str);
    let options = values.iter().enumerate().map(|(at, value)| {
        let title = title(at).unwrap_or_default().to_owned();
        Some(InputOption { value: value.as_str()?.to_owned(), title })
    });
    options.collect()
}

fn text(schema: &Map<String, Value>, key: &str) -> String {
    schema.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_field_is_read() {
        let fields = fields(&json!({"type": "object", "required": ["mail"], "properties": {
            "mail": {"type": "string", "title": "Mail", "format": "email", "maxLength": 30},
            "age": {"type": "integer", "minimum": 1, "default": 7},
            "share": {"type": "number", "maximum": 1.5},
            "sure": {"type": "boolean", "default": false},
            "color": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red"]},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
            "days": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["mon"]}},
            "more": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
        }}))
        .unwrap();
        let shown = serde_json::to_value(&fields).unwrap();
        let field = |name: &str| {
            shown.as_array().unwrap().iter().find(|field| field["name"] == name).unwrap().clone()
        };
        assert_eq!(
            field("mail"),
            json!({"name": "mail", "title": "Mail", "required": true, "type": "text",
                "format": "email", "maxLength": 30})
        );
        assert_eq!((&field("age")["integer"], &field("age")["default"]), (&json!(true), &json!(7)));
        assert_eq!(field("share")["maximum"], 1.5);
        assert_eq!(field("sure")["type"], "boolean");
        assert_eq!(
            field("color")["options"],
            json!([{"value": "r", "title": "Red"}, {"value": "g"}])
        );
        assert_eq!(field("size")["options"], json!([{"value": "s", "title": "Small"}]));
        assert_eq!(
            (&field("days")["type"], &field("days")["maxItems"]),
            (&json!("choices"), &json!(2))
        );
        assert_eq!(field("more")["options"][0]["value"], "x");
    }

    #[test]
    fn other_schemas_are_refused() {
        let property = |schema: Value| fields(&json!({"properties": {"x": schema}}));
        for schema in [
            json!({"type": "object", "properties": {}}),
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"type": "null"}),
            json!(true),
        ] {
            assert!(property(schema.clone()).is_err(), "{schema}");
        }
        assert!(fields(&json!({})).is_err());
    }
}
