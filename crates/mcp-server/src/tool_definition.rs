//! Definitions of tools for clients.

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use rockbot_contracts::{ToolHints, ToolRegistration};
use serde_json::Value;

/// Key of the source of a tool in its metadata.
const SOURCE: &str = "rockbot/source";

/// Returns the definition of a tool for clients.
pub(crate) fn definition(tool: &ToolRegistration) -> Tool {
    let mut meta = MetaObject::new();
    meta.0.insert(SOURCE.to_owned(), tool.source.text().into_owned().into());
    let definition = Tool::new(
        tool.name.clone(),
        tool.model_description().to_owned(),
        input_schema(&tool.parameters),
    );
    definition
        .with_title(tool.display_label())
        .with_annotations(annotations(tool.hints))
        .with_meta(meta)
}

/// Returns the schema of the arguments. Clients require the type at its top.
fn input_schema(parameters: &Value) -> JsonObject {
    let mut schema = parameters.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    schema
}

/// Returns the hints as annotations.
pub(crate) fn annotations(hints: ToolHints) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(hints.read_only)
        .destructive(hints.destructive && !hints.read_only)
        .idempotent(hints.idempotent || hints.read_only)
        .open_world(hints.open_world)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hints_become_annotations() {
        let read_only = annotations(ToolHints::READ_ONLY);
        assert_eq!(read_only.read_only_hint, Some(true));
        assert_eq!(read_only.destructive_hint, Some(false));
        assert_eq!(read_only.open_world_hint, Some(false));
        let unknown = annotations(ToolHints::default());
        assert_eq!((unknown.read_only_hint, unknown.destructive_hint), (Some(false), Some(true)));
        assert_eq!(unknown.idempotent_hint, Some(false));
    }

    #[test]
    fn schema_gets_a_type() {
        let schema = input_schema(&json!({"properties": {"a": {"type": "string"}}}));
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["a"]["type"], "string");
        assert_eq!(input_schema(&Value::Null)["type"], "object");
    }
}
