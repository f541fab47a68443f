//! Definitions of the file tools.

use rockbot_tools::{ToolHints, ToolRegistration, ToolSource};
use serde_json::{Value, json};

/// Returns the registration of a file tool. `properties` are the schemas of the arguments.
pub(super) fn registration(
    name: &str,
    label: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
    hints: ToolHints,
) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: Some(label.to_owned()),
        description: description.to_owned(),
        tool_description: None,
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
        source: ToolSource::Files,
        hints,
        timeout_ms: None,
    }
}

/// Returns the hints of a tool that changes files and has no other effect.
pub(super) const fn changes_files(idempotent: bool) -> ToolHints {
    ToolHints { read_only: false, destructive: true, idempotent, open_world: false }
}
