//! What all servers together offer: tools in a registry, and the index of servers.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use rockbot_contracts::{
    ToolRegistration,
    mcp::{McpServerDetails, McpServerSummary, McpToolDefinition},
};
use rockbot_tool_rpc::mcp::{McpIndex, untrusted_text::plain};
use rockbot_tools::{
    CallPolicy, RegisterError, Tool, ToolContext, ToolFailure, ToolRegistry, ToolResult,
    fingerprint::server_fingerprint,
    names::{DEFAULT_NAME_BYTES, with_hash},
};
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use crate::{server::Caller, session::Session, summary};

/// The longest instructions of a server that are passed on, in characters.
const MAX_INSTRUCTIONS_CHARS: usize = 16_000;
/// The longest name a server may give itself, in characters.
const MAX_DISPLAY_CHARS: usize = 100;

/// The tools of the servers that are connected.
#[derive(Debug)]
pub(crate) struct Offer {
    registry: Arc<ToolRegistry>,
    index: watch::Sender<McpIndex>,
    servers: Mutex<BTreeMap<String, Offered>>,
}

/// What one server offers.
#[derive(Debug)]
struct Offered {
    details: McpServerDetails,
    /// Registry names, by the tools' names on the server.
    names: BTreeMap<String, String>,
}

impl Offer {
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

    /// The registry's name of a server's tool. Servers are compared without regard to case.
    pub(crate) fn registered(&self, server: &str, tool: &str) -> Option<String> {
        self.servers().get(&server.to_lowercase())?.names.get(tool).cloned()
    }

    /// A server in full.
    pub(crate) fn details(&self, server: &str) -> Option<McpServerDetails> {
        Some(self.servers().get(&server.to_lowercase())?.details.clone())
    }

    /// Offers what a server has now, in place of what it had.
    pub(crate) fn put(
        &self,
        server: &str,
        session: &Session,
        tools: &BTreeMap<String, McpToolDefinition>,
        caller: &Caller,
    ) {
        let mut servers = self.servers();
        let key = server.to_lowercase();
        let before = servers.remove(&key).map(|offered| offered.details.tools).unwrap_or_default();
        let mut names = BTreeMap::new();
        let mut kept = Vec::new();
        // What did not change stays where it is: a call may be on its way to it.
        let (unchanged, other): (Vec<_>, Vec<_>) = before
            .into_iter()
            .partition(|old| tools.get(&old.name).is_some_and(|new| is_same_definition(old, new)));
        for old in &other {
            self.registry.unregister(&old.model_name);
        }
        for (tool, definition) in tools {
            if let Some(old) = unchanged.iter().find(|old| old.name == *tool) {
                names.insert(tool.clone(), old.model_name.clone());
                kept.push(old.clone());
                continue;
            }
            match self.register(server, definition, caller) {
                Ok(definition) => {
                    names.insert(tool.clone(), definition.model_name.clone());
                    kept.push(definition);
                }
                Err(error) => warn!(%server, %error, "a tool of a server can't be offered"),
            }
        }
        let details = details(server, session, kept);
        let summary = details.server.clone();
        servers.insert(key, Offered { details, names });
        drop(servers);
        self.index.send_if_modified(|index| {
            let old = index.get(server);
            // A summary by a model stays as long as the tools do.
            let same_tools = old.is_some_and(|old| old.fingerprint == summary.fingerprint);
            if same_tools {
                return false;
            }
            index.insert(summary);
            true
        });
    }

    /// Says what a server is for in other words.
    pub(crate) fn describe(&self, server: &str, words: String) {
        if let Some(offered) = self.servers().get_mut(&server.to_lowercase()) {
            offered.details.server.summary.clone_from(&words);
        }
        self.index.send_if_modified(|index| {
            let Some(mut summary) = index.get(server).cloned() else { return false };
            summary.summary = words;
            index.insert(summary);
            true
        });
    }

    /// Offers nothing of a server any more.
    pub(crate) fn withdraw(&self, server: &str) {
        let Some(offered) = self.servers().remove(&server.to_lowercase()) else { return };
        for name in offered.names.values() {
            self.registry.unregister(name);
        }
        self.index.send_if_modified(|index| index.remove(server));
    }

    fn register(
        &self,
        server: &str,
        definition: &McpToolDefinition,
        caller: &Caller,
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
            // Another server's name became the same.
            Err(RegisterError::Duplicate { .. }) => {
                let whole = format!("{server}/{}", definition.name);
                definition.model_name =
                    with_hash(&definition.model_name, &whole, DEFAULT_NAME_BYTES);
                self.registry.register(tool(&definition))?;
            }
            other => other?,
        }
        Ok(definition)
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Offered>> {
        self.servers.lock()
    }
}

/// Whether two definitions differ in nothing but the name for models, which depends on the others.
fn is_same_definition(old: &McpToolDefinition, new: &McpToolDefinition) -> bool {
    McpToolDefinition { model_name: old.model_name.clone(), ..new.clone() } == *old
}

fn details(server: &str, session: &Session, tools: Vec<McpToolDefinition>) -> McpServerDetails {
    let display_name = session.display_name.as_deref().unwrap_or(server);
    let instructions = session
        .instructions
        .as_deref()
        .map(|text| plain(text, MAX_INSTRUCTIONS_CHARS))
        .filter(|text| !text.is_empty());
    let names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
    let server = McpServerSummary {
        name: server.to_owned(),
        display_name: plain(display_name, MAX_DISPLAY_CHARS),
        summary: summary::fixed(instructions.as_deref(), &names),
        tool_count: u32::try_from(names.len()).unwrap_or(u32::MAX),
        tool_names: names,
        fingerprint: server_fingerprint(&tools),
    };
    let protocol_version = Some(session.protocol_version.clone());
    McpServerDetails { server, instructions, protocol_version, tools }
}

/// A tool of a server, where it is called.
struct ServerTool {
    registration: ToolRegistration,
    tool: Box<str>,
    caller: Caller,
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

    fn keeps_deadline(&self) -> bool {
        true
    }

    fn policy(&self) -> Option<CallPolicy> {
        Some(self.caller.policy())
    }
}
