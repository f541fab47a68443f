//! The tools of a request, by name.

use std::collections::HashMap;

use serde_json::Value;

use crate::chat::ToolDefinition;

/// The tools that an answer may call. Their schemas give the types of arguments that a format writes as
/// plain text.
#[derive(Debug, Default)]
pub(crate) struct ToolSet(HashMap<String, Value>);

impl ToolSet {
    pub(crate) fn new(tools: &[ToolDefinition]) -> Self {
        Self(tools.iter().map(|tool| (tool.name.clone(), tool.parameters.clone())).collect())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns an argument as JSON. Text stays text if the schema demands a string; other values are parsed.
    pub(super) fn argument(&self, tool: &str, key: &str, text: &str) -> Value {
        let types = self.0.get(tool).map(|schema| &schema["properties"][key]["type"]);
        let may_be = |name: &str| match types {
            Some(Value::String(one)) => one == name,
            Some(Value::Array(many)) => many.iter().any(|one| one == name),
            _ => false,
        };
        let as_text = || Value::String(text.to_owned());
        if may_be("string") && !may_be("null") {
            return as_text();
        }
        match serde_json::from_str::<Value>(text.trim()) {
            Ok(Value::String(_)) | Err(_) => as_text(),
            Ok(value) if may_be("string") && !value.is_null() => as_text(),
            Ok(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_decides_between_text_and_json() {
        let properties = json!({
            "zip": {"type": "string"}, "count": {"type": "integer"}, "note": {"type": ["string", "null"]},
        });
        let tools = ToolSet::new(&[ToolDefinition {
            name: "send".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": properties}),
        }]);
        let argument = |key, text| tools.argument("send", key, text);
        assert_eq!(argument("zip", "01234"), json!("01234"));
        assert_eq!(argument("zip", "true"), json!("true"));
        assert_eq!(argument("count", " 3\n"), json!(3));
        assert_eq!(argument("count", "three"), json!("three"));
        assert_eq!(argument("note", "null"), Value::Null);
        assert_eq!(argument("note", "12"), json!("12"));
        assert_eq!(argument("other", "[1,2]"), json!([1, 2]));
        assert_eq!(argument("other", "plain \"text\""), json!("plain \"text\""));
    }
}
