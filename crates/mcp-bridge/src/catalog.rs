//! The catalog of connected servers: the registry of their tools, and the index of servers.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use rockbot_contracts::{
    ToolRegistration,
    mcp::{McpRejectedTool, McpRenamedTool, McpServerDetails, McpServerSummary, McpToolDefinition},
    outside_text::plain,
};
use rockbot_tool_rpc::mcp::McpIndex;
use rockbot_tools::{
    CallPolicy, RegisterError, Tool, ToolContext, ToolFailure, ToolRegistry, ToolResult,
    fingerprint::server_fingerprint,
    names::{DEFAULT_NAME_BYTES, MAX_NAME_BYTES, namespaced, with_hash},
};
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    definitions::{Definitions, Offers},
    server_session::ServerInfo,
    status::ListedTools,
    summary,
    tool_caller::ToolCaller,
};

/// The longest instructions that are passed on, in characters.
const MAX_INSTRUCTIONS_CHARS: usize = 16_000;
/// The longest reason why a tool is rejected, in characters.
const MAX_REASON_CHARS: usize = 300;
/// The largest entry of a server in the index, in bytes of JSON.
const MAX_ENTRY_BYTES: usize = 64 * 1024;
/// The longest display name of a server, in characters.
const MAX_DISPLAY_CHARS: usize = 100;

/// The tools of the connected servers.
#[derive(Debug)]
pub(crate) struct Catalog {
    registry: Arc<ToolRegistry>,
    index: watch::Sender<McpIndex>,
    servers: Mutex<BTreeMap<String, CatalogEntry>>,
}

/// The tools of one server.
#[derive(Debug)]
struct CatalogEntry {
    details: McpServerDetails,
    /// Registry names by the tools' names on the server.
    names: BTreeMap<String, String>,
    /// The number of tools that it lists and that cannot be offered.
    left_out: usize,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        Self {
            registry: Arc::default(),
            index: watch::Sender::default(),
            servers: Mutex::default(),
        }
    }

    pub(crate) fn registry(&self) -> &Arc<ToolRegistry> {
        &self.registry
    }

    pub(crate) fn index(&self) -> watch::Receiver<McpIndex> {
        self.index.subscribe()
    }

    /// Returns the registry name of a tool. Server names are case-insensitive.
    pub(crate) fn registry_name(&self, server: &str, tool: &str) -> Option<String> {
        self.servers().get(&server.to_lowercase())?.names.get(tool).cloned()
    }

    /// Returns the details of a server.
    pub(crate) fn details(&self, server: &str) -> Option<McpServerDetails> {
        Some(self.servers().get(&server.to_lowercase())?.details.clone())
    }

    /// Returns the details of a server with one tool; with none if it does not have the tool.
    pub(crate) fn tool_details(&self, server: &str, tool: &str) -> Option<McpServerDetails> {
        let servers = self.servers();
        let McpServerDetails { server, instructions, protocol_version, tools, .. } =
            &servers.get(&server.to_lowercase())?.details;
        let tool = tools.iter().find(|one| one.name == tool);
        Some(McpServerDetails {
            server: server.clone(),
            instructions: instructions.clone(),
            protocol_version: protocol_version.clone(),
            tools: tool.cloned().into_iter().collect(),
            next: None,
        })
    }

    /// Returns the index entry of a server.
    pub(crate) fn summary(&self, server: &str) -> Option<McpServerSummary> {
        Some(self.servers().get(&server.to_lowercase())?.details.server.clone())
    }

    /// Returns the listed tools of a server, for its status.
    pub(crate) fn listed_tools(&self, server: &str) -> Option<ListedTools> {
        let servers = self.servers();
        let entry = servers.get(&server.to_lowercase())?;
        let McpServerSummary {
            tool_count, rejected_tools, renamed_tools, renamed_left_out, ..
        } = &entry.details.server;
        Some(ListedTools {
            offered: *tool_count as usize,
            rejected: rejected_tools.clone(),
            left_out: entry.left_out,
            renamed: renamed_tools.clone(),
            renamed_left_out: *renamed_left_out,
        })
    }

    /// Replaces the tools of a server, and its other offers. Calls `updated` before the index is published,
    /// so that a server in the index has a current state.
    pub(crate) fn update(
        &self,
        server: &str,
        info: &ServerInfo,
        definitions: Definitions,
        caller: &ToolCaller,
        updated: impl FnOnce(),
    ) {
        let Definitions { tools, mut rejected, offers } = definitions;
        let mut servers = self.servers();
        let key = server.to_lowercase();
        let before = servers.remove(&key).map(|entry| entry.details.tools).unwrap_or_default();
        let mut names = BTreeMap::new();
        let mut definitions = Vec::new();
        // Unchanged tools stay registered, because calls of them may be running.
        let (unchanged, obsolete): (Vec<_>, Vec<_>) = before
            .into_iter()
            .partition(|old| tools.get(&old.name).is_some_and(|new| is_same_definition(old, new)));
        for old in &obsolete {
            self.registry.unregister(&old.model_name);
        }
        for (tool, definition) in &tools {
            if let Some(old) = unchanged.iter().find(|old| old.name == *tool) {
                names.insert(tool.clone(), old.model_name.clone());
                definitions.push(old.clone());
                continue;
            }
            match self.register(server, definition, caller) {
                Ok(definition) => {
                    names.insert(tool.clone(), definition.model_name.clone());
                    definitions.push(definition);
                }
                Err(error) => {
                    let reason = match error {
                        RegisterError::InvalidSchema { source, .. } => source.to_string(),
                        error => error.to_string(),
                    };
                    rejected.push(McpRejectedTool { name: tool.clone(), reason });
                }
            }
        }
        let left_out = rejected.len();
        let rejected = listed(rejected);
        for McpRejectedTool { name, reason } in &rejected {
            warn!(%server, tool = %name, %reason, "tool rejected");
        }
        let mut details = details(server, info, definitions);
        let Offers { has_resources, prompts } = offers;
        details.server.has_resources = has_resources;
        details.server.prompts = prompts.prompts;
        details.server.prompts_left_out = u32::try_from(prompts.left_out).unwrap_or(u32::MAX);
        details.server.rejected_tools = rejected;
        details.server.exposure = caller.config().exposure;
        limit_entry(&mut details.server);
        let summary = details.server.clone();
        servers.insert(key, CatalogEntry { details, names, left_out });
        drop(servers);
        updated();
        self.index.send_if_modified(|index| {
            let old = index.get(server);
            // A summary by a model stays as long as the tools do not change.
            let same_tools = old.is_some_and(|old| {
                old.fingerprint == summary.fingerprint
                    && old.rejected_tools == summary.rejected_tools
                    && old.renamed_tools == summary.renamed_tools
                    && old.renamed_left_out == summary.renamed_left_out
                    && old.has_instructions == summary.has_instructions
                    && old.has_resources == summary.has_resources
                    && old.prompts == summary.prompts
                    && old.prompts_left_out == summary.prompts_left_out
            });
            if same_tools {
                return false;
            }
            index.insert(summary);
            true
        });
    }

    /// Replaces the summary of a server.
    pub(crate) fn set_summary(&self, server: &str, text: String) {
        if let Some(entry) = self.servers().get_mut(&server.to_lowercase()) {
            entry.details.server.summary.clone_from(&text);
        }
        self.index.send_if_modified(|index| {
            let Some(mut summary) = index.get(server).cloned() else { return false };
            summary.summary = text;
            index.insert(summary);
            true
        });
    }

    /// Removes the tools of a server.
    pub(crate) fn withdraw(&self, server: &str) {
        let Some(entry) = self.servers().remove(&server.to_lowercase()) else { return };
        for name in entry.names.values() {
            self.registry.unregister(name);
        }
        self.index.send_if_modified(|index| index.remove(server));
    }

    fn register(
        &self,
        server: &str,
        definition: &McpToolDefinition,
        caller: &ToolCaller,
    ) -> Result<McpToolDefinition, RegisterError> {
        let mut definition = definition.clone();
        let tool = |definition: &McpToolDefinition| {
            Arc::new(ServerTool {
                registration: definition.registration(server),
                tool: definition.name.as_str().into(),
                caller: caller.clone(),
            })
        };
        match self.registry.register(tool(&definition)) {
            // Another server's name normalizes to the same text.
            Err(RegisterError::Duplicate { .. }) => {
                let full_name = format!("{server}/{}", definition.name);
                definition.model_name =
                    with_hash(&definition.model_name, &full_name, DEFAULT_NAME_BYTES);
                self.registry.register(tool(&definition))?;
            }
            result => result?,
        }
        Ok(definition)
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, CatalogEntry>> {
        self.servers.lock()
    }
}

/// Returns whether two definitions are equal except for the model name, which depends on other tools.
fn is_same_definition(old: &McpToolDefinition, new: &McpToolDefinition) -> bool {
    McpToolDefinition { model_name: old.model_name.clone(), ..new.clone() } == *old
}

fn details(server: &str, info: &ServerInfo, tools: Vec<McpToolDefinition>) -> McpServerDetails {
    let display_name = info.display_name.as_deref().unwrap_or(server);
    let instructions = info
        .instructions
        .as_deref()
        .map(|text| plain(text, MAX_INSTRUCTIONS_CHARS))
        .filter(|text| !text.is_empty());
    let names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
    let (renamed_tools, renamed_left_out) = renamed(server, &tools);
    let server = McpServerSummary {
        name: server.to_owned(),
        display_name: plain(display_name, MAX_DISPLAY_CHARS),
        summary: summary::fallback(instructions.as_deref(), &names),
        tool_count: u32::try_from(names.len()).unwrap_or(u32::MAX),
        tool_names: names,
        rejected_tools: Vec::new(),
        renamed_tools,
        renamed_left_out,
        has_instructions: instructions.is_some(),
        has_resources: false,
        prompts: Vec::new(),
        prompts_left_out: 0,
        exposure: None,
        fingerprint: server_fingerprint(&tools),
    };
    let protocol_version = Some(info.protocol_version.clone());
    McpServerDetails { server, instructions, protocol_version, tools, next: None }
}

/// Returns the tools with a hash in their names for models, and the number of those beyond the limit of a
/// summary.
fn renamed(server: &str, tools: &[McpToolDefinition]) -> (Vec<McpRenamedTool>, u32) {
    let is_renamed = |tool: &&McpToolDefinition| {
        tool.model_name != namespaced(server, &tool.name, MAX_NAME_BYTES)
    };
    let renamed = tools.iter().filter(is_renamed).map(|tool| McpRenamedTool {
        name: tool.name.clone(),
        model_name: tool.model_name.clone(),
    });
    let mut renamed: Vec<_> = renamed.collect();
    let left_out = renamed.len().saturating_sub(McpRenamedTool::MAX_LISTED);
    renamed.truncate(McpRenamedTool::MAX_LISTED);
    (renamed, u32::try_from(left_out).unwrap_or(u32::MAX))
}

/// Omits tool names from an index entry that is larger than [`MAX_ENTRY_BYTES`].
fn limit_entry(entry: &mut McpServerSummary) {
    let names = std::mem::take(&mut entry.tool_names);
    let size = |json: serde_json::Result<Vec<u8>>| json.map_or(MAX_ENTRY_BYTES, |json| json.len());
    let mut bytes = size(serde_json::to_vec(entry));
    let fits = |name: &String| {
        bytes += size(serde_json::to_vec(name)) + 1;
        bytes <= MAX_ENTRY_BYTES
    };
    entry.tool_names = names.into_iter().take_while(fits).collect();
}

/// Returns rejected tools for a summary. The last one stands for those beyond the limit.
fn listed(mut rejected: Vec<McpRejectedTool>) -> Vec<McpRejectedTool> {
    let more = rejected.len().saturating_sub(McpRejectedTool::MAX_LISTED);
    rejected.truncate(McpRejectedTool::MAX_LISTED);
    for tool in &mut rejected {
        tool.name = plain(&tool.name, MAX_DISPLAY_CHARS);
        tool.reason = plain(&tool.reason, MAX_REASON_CHARS);
    }
    if let Some(last) = rejected.last_mut().filter(|_| more > 0) {
        last.reason = format!("{}; {more} more tools are rejected", last.reason);
    }
    rejected
}

/// A registered tool that calls its server.
struct ServerTool {
    registration: ToolRegistration,
    tool: Box<str>,
    caller: ToolCaller,
}

impl Tool for ServerTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.caller.call(&self.tool, arguments, context))
    }

    fn enforces_own_deadline(&self) -> bool {
        true
    }

    fn policy(&self) -> Option<CallPolicy> {
        Some(self.caller.policy())
    }
}
