//! The tools that a client is shown.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
use rockbot_tools::registry::RegisteredTool;
use serde_json::Value;

use crate::{client::McpClient, fleet::McpFleet, search};

/// Tools in one page of a list.
pub(crate) const PAGE: usize = 250;

/// Key of the source of a tool in its metadata.
const SOURCE: &str = "rockbot/source";

/// The listed tools of a client.
pub(crate) struct Listing {
    /// Ordered by name.
    pub(crate) tools: Vec<Arc<RegisteredTool>>,
    /// Set if the client may use more tools, which it finds by search.
    pub(crate) is_partial: bool,
}

/// Returns the tools that a client may use, ordered by name.
pub(crate) fn permitted(fleet: &McpFleet, client: &McpClient) -> Vec<Arc<RegisteredTool>> {
    let mut tools = fleet.registry().all();
    tools.retain(|tool| {
        client.permits(tool.registration()) && !search::is_search_tool(&tool.registration().name)
    });
    tools
}

/// Returns the tools that a client is shown: all that it may use, or without those of MCP servers if these are too
/// many, or none if the others are too many as well.
pub(crate) fn listed(fleet: &McpFleet, client: &McpClient) -> Listing {
    let limit = fleet.section.max_listed_tools;
    let mut tools = permitted(fleet, client);
    if tools.len() <= limit {
        return Listing { tools, is_partial: false };
    }
    tools.retain(|tool| !matches!(tool.registration().source, ToolSource::Mcp(_)));
    if tools.len() + search::TOOLS > limit {
        tools.retain(|tool| matches!(tool.registration().source, ToolSource::Agent(_)));
        tools.truncate(limit - search::TOOLS);
    }
    Listing { tools, is_partial: true }
}

/// Returns a page of the tools in the list of a client, and the cursor of the next one. A cursor is the name of
/// the last tool of a page, so it stays valid when tools come and go.
pub(crate) fn page(
    fleet: &McpFleet,
    client: &McpClient,
    after: Option<&str>,
) -> (Vec<Tool>, Option<String>) {
    let Listing { tools, is_partial } = listed(fleet, client);
    let mut tools: Vec<_> = tools.iter().map(|tool| definition(tool.registration())).collect();
    if is_partial {
        tools.extend(search::definitions());
        tools.sort_by(|one, other| one.name.cmp(&other.name));
    }
    tools.retain(|tool| after.is_none_or(|after| *tool.name > *after));
    let has_more = tools.len() > PAGE;
    tools.truncate(PAGE);
    let next = tools.last().filter(|_| has_more).map(|last| last.name.to_string());
    (tools, next)
}

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
