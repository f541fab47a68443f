//! The tools that find and call tools that are not listed.

use rmcp::model::{JsonObject, Tool};
use rockbot_contracts::ToolHints;
use serde_json::{Value, json};

use crate::tool_definition::annotations;

/// Finds tools.
pub(crate) const FIND: &str = "rockbot_find_tools";
/// Calls a tool by its name.
pub(crate) const INVOKE: &str = "rockbot_invoke_tool";
/// Number of these tools.
pub(crate) const TOOLS: usize = 2;

/// Longest query, in characters.
pub(crate) const MAX_QUERY_CHARS: usize = 500;

/// Returns whether a name is reserved for one of these tools.
pub(crate) fn is_search_tool(name: &str) -> bool {
    [FIND, INVOKE].contains(&name)
}

/// Returns the definitions of the tools.
pub(crate) fn definitions() -> [Tool; TOOLS] {
    let find = tool(
        FIND,
        "Find tools by keywords: the list of tools is not complete. Returns the names, descriptions and \
         arguments of up to 10 tools, which rockbot_invoke_tool calls.",
        json!({"type": "object", "required": ["query"], "additionalProperties": false,
            "properties": {"query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_CHARS}}}),
        ToolHints::READ_ONLY,
    );
    let invoke = tool(
        INVOKE,
        "Call a tool that rockbot_find_tools has found.",
        json!({"type": "object", "required": ["tool_name"], "additionalProperties": false,
            "properties": {"tool_name": {"type": "string", "minLength": 1, "maxLength": 128},
                "arguments": {"type": "object", "description": "As the schema of the tool says."}}}),
        ToolHints::default(),
    );
    [find, invoke]
}

fn tool(name: &'static str, description: &'static str, schema: Value, hints: ToolHints) -> Tool {
    let schema = if let Value::Object(schema) = schema { schema } else { JsonObject::new() };
    Tool::new(name, description, schema).with_annotations(annotations(hints))
}

/// Returns the tool and the arguments of a call of [`INVOKE`].
///
/// # Errors
/// A message for the model, when the arguments are invalid.
pub(crate) fn invoked(mut arguments: JsonObject) -> Result<(String, JsonObject), &'static str> {
    let Some(Value::String(name)) = arguments.remove("tool_name") else {
        return Err("tool_name: the name of a tool is required");
    };
    match arguments.remove("arguments") {
        Some(Value::Object(arguments)) => Ok((name, arguments)),
        None => Ok((name, JsonObject::new())),
        Some(_) => Err("arguments: must be an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_arguments_of_invoke_are_rejected() {
        let read = |value: Value| {
            let Value::Object(arguments) = value else { panic!("not an object") };
            invoked(arguments)
        };
        let (name, arguments) = read(json!({"tool_name": "a", "arguments": {"b": 1}})).unwrap();
        assert_eq!((name.as_str(), arguments.len()), ("a", 1));
        assert_eq!(read(json!({"tool_name": "a"})).unwrap().1.len(), 0);
        assert!(read(json!({})).is_err());
        assert!(read(json!({"tool_name": 1})).is_err());
        assert!(read(json!({"tool_name": "a", "arguments": []})).is_err());
    }
}
