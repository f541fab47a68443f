//! The tools that a client is shown.

use std::sync::Arc;

use rmcp::model::Tool;
use rockbot_contracts::ToolSource;
use rockbot_tools::registry::RegisteredTool;

use crate::{client::McpClient, fleet::McpFleet, search_tools, tool_definition::definition};

/// Tools in one page of a list.
pub(crate) const PAGE: usize = 250;

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
        client.permits(tool.registration())
            && !search_tools::is_search_tool(&tool.registration().name)
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
    if tools.len() + search_tools::TOOLS > limit {
        tools.retain(|tool| matches!(tool.registration().source, ToolSource::Agent(_)));
        tools.truncate(limit - search_tools::TOOLS);
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
        tools.extend(search_tools::definitions());
        tools.sort_by(|one, other| one.name.cmp(&other.name));
    }
    tools.retain(|tool| after.is_none_or(|after| *tool.name > *after));
    let has_more = tools.len() > PAGE;
    tools.truncate(PAGE);
    let next = tools.last().filter(|_| has_more).map(|last| last.name.to_string());
    (tools, next)
}
