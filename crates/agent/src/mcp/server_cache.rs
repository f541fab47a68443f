//! Cache of MCP servers and the definitions of their tools.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{
    ToolRegistration,
    mcp::{McpServerDetails, McpToolDefinition},
    outside_text::{is_name, plain},
};
use rockbot_store::StoreError;
use rockbot_tool_rpc::mcp::McpIndex;
use rockbot_tools::{
    PinnedDefinition, PinnedTool, ScopeError, ToolPins, ToolRegistry, ToolScope, ToolSource,
    fingerprint::definition_fingerprint,
    names::{DEFAULT_NAME_BYTES, MAX_NAME_BYTES, sanitize, with_hash},
};

/// Maximum number of tools of one server.
const MAX_TOOLS: usize = 2048;

/// Longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 4000;
/// Longest instructions of a server, in characters.
const MAX_INSTRUCTIONS_CHARS: usize = 4000;

/// A server with its tools.
#[derive(Debug)]
pub(super) struct CachedServer {
    /// Name as spelled by the bridge.
    pub(super) name: String,
    /// Fingerprint of the server at the time of loading.
    fingerprint: String,
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<Arc<CachedTool>>,
}

/// A tool of a server.
#[derive(Debug)]
pub(super) struct CachedTool {
    pub(super) server: String,
    pub(super) definition: McpToolDefinition,
    /// Name in the tool list of a model.
    pub(super) name: String,
    pub(super) fingerprint: String,
}

impl CachedServer {
    /// Returns the tool with this name on the server.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<CachedTool>> {
        self.tools.iter().find(|tool| tool.definition.name == name)
    }
}

impl CachedTool {
    /// Returns the sanitized description of the server.
    pub(super) fn description(&self) -> String {
        plain(&self.definition.description, MAX_DESCRIPTION_CHARS)
    }

    /// Returns the definition for a model. It names the source of the description.
    pub(super) fn registration(&self) -> ToolRegistration {
        let mut registration = self.definition.registration(&self.server);
        registration.name.clone_from(&self.name);
        registration.label = registration.label.map(|label| plain(&label, 128));
        registration.description = format!(
            "Tool {} of the MCP server {}. Description by the server: {}",
            self.definition.name,
            self.server,
            self.description()
        );
        registration
    }

    /// Checks that the scope permits the tool.
    pub(super) fn check_scope(&self, scope: &ToolScope) -> Result<(), ScopeError> {
        scope.check(&self.name, &ToolSource::Mcp(self.server.clone()))
    }

    /// Returns `true` if the definition is trusted.
    pub(super) async fn is_trusted(&self, pins: &ToolPins) -> Result<bool, StoreError> {
        let source = format!("mcp:{}", self.server.to_lowercase());
        let pinned = || PinnedDefinition {
            fingerprint: self.fingerprint.clone(),
            description: self.definition.description.clone(),
            parameters: self.definition.parameters.clone(),
            hints: self.definition.hints,
            invoke_key: None,
        };
        let (place, tool, name) = (source.as_str(), &self.definition.name, &self.name);
        let tool = PinnedTool { namespace: place, tool, source: place, name, invoke_key: None };
        pins.is_trusted(tool, &self.fingerprint, pinned).await
    }
}

/// The loaded servers, and the model names of their tools.
#[derive(Debug)]
pub(super) struct ServerCache {
    /// Tools whose names are taken.
    others: Arc<ToolRegistry>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By name in lower case.
    servers: HashMap<String, Arc<CachedServer>>,
    /// Owner of each model name: server in lower case, and tool.
    names: HashMap<String, (String, String)>,
}

impl ServerCache {
    pub(super) fn new(others: Arc<ToolRegistry>) -> Self {
        Self { others, state: Mutex::default() }
    }

    /// Returns a server if it was loaded with this fingerprint.
    pub(super) fn get(&self, server: &str, fingerprint: &str) -> Option<Arc<CachedServer>> {
        let state = self.lock();
        let known = state.servers.get(&server.to_lowercase())?;
        (known.fingerprint == fingerprint).then(|| known.clone())
    }

    /// Stores the current tools of a server. A tool keeps its model name. If the name is taken, a hash of
    /// the full name is appended.
    pub(super) fn insert(&self, details: McpServerDetails) -> Arc<CachedServer> {
        let McpServerDetails { server, instructions, mut tools, .. } = details;
        tools.retain(|tool| is_name(&tool.name));
        tools.truncate(MAX_TOOLS);
        let mut state = self.lock();
        let lower = server.name.to_lowercase();
        let current: HashSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let stays = |tool: &String| current.contains(tool.as_str());
        state.names.retain(|_, (owner, tool)| *owner != lower || stays(tool));
        let own = state.names.iter().filter(|(_, (owner, _))| *owner == lower);
        let mut own: HashMap<_, _> =
            own.map(|(name, (_, tool))| (tool.clone(), name.clone())).collect();
        // The owner of a contested name must not depend on the order of the server: a tool whose own name
        // needed no change comes first, then the alphabetically first.
        let mut order: Vec<_> = tools.iter().collect();
        let is_sanitized = |tool: &str| sanitize(tool, MAX_NAME_BYTES) != tool;
        order.sort_by_key(|tool| (is_sanitized(&tool.name), tool.name.as_str()));
        for definition in order {
            if !own.contains_key(&definition.name) {
                let name = self.assign_name(&mut state.names, &lower, definition);
                own.insert(definition.name.clone(), name);
            }
        }
        let tools = tools.into_iter().map(|definition| {
            let name = own.get(&definition.name).cloned().unwrap_or_default();
            let fingerprint = definition_fingerprint(&definition);
            let server = server.name.clone();
            Arc::new(CachedTool { server, definition, name, fingerprint })
        });
        let known = Arc::new(CachedServer {
            tools: tools.collect(),
            name: server.name,
            fingerprint: server.fingerprint,
            instructions: instructions.map(|text| plain(&text, MAX_INSTRUCTIONS_CHARS)),
        });
        state.servers.insert(lower, known.clone());
        known
    }

    /// Drops servers that no longer exist.
    pub(super) fn retain_listed(&self, index: &McpIndex) {
        let mut state = self.lock();
        state.servers.retain(|server, _| index.get(server).is_some());
        state.names.retain(|_, (server, _)| index.get(server).is_some());
    }

    /// Assigns a name to a tool that has none.
    fn assign_name(
        &self,
        names: &mut HashMap<String, (String, String)>,
        server: &str,
        definition: &McpToolDefinition,
    ) -> String {
        let owner = (server.to_owned(), definition.name.clone());
        let wanted = sanitize(&definition.model_name, DEFAULT_NAME_BYTES);
        let is_free = |name: &String| !names.contains_key(name) && self.others.get(name).is_none();
        let whole = format!("{server}\n{}", definition.name);
        let name = Some(wanted.clone())
            .filter(is_free)
            .unwrap_or_else(|| with_hash(&wanted, &whole, DEFAULT_NAME_BYTES));
        names.insert(name.clone(), owner);
        name
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
