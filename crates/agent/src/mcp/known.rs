//! Definitions of tools, as they were when their server was last looked at.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rockbot_contracts::{
    ToolRegistration,
    mcp::{McpServerDetails, McpToolDefinition},
};
use rockbot_store::StoreError;
use rockbot_tool_rpc::mcp::{
    McpIndex,
    untrusted_text::{is_name, plain},
};
use rockbot_tools::{
    PinnedDefinition, PinnedTool, ScopeError, ToolPins, ToolRegistry, ToolScope, ToolSource,
    fingerprint::definition_fingerprint,
    names::{DEFAULT_NAME_BYTES, MAX_NAME_BYTES, sanitize, with_hash},
};

/// Most tools of one server that are looked at.
const MOST_TOOLS: usize = 1024;

/// The longest description and the longest instructions that a model reads, in characters.
const MOST_DESCRIPTION: usize = 4000;
const MOST_INSTRUCTIONS: usize = 4000;

/// A server with its tools.
#[derive(Debug)]
pub(super) struct KnownServer {
    /// Its name as its bridge writes it.
    pub(super) name: String,
    /// Of which state of the server this tells.
    fingerprint: String,
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<Arc<KnownTool>>,
}

/// One tool of a server.
#[derive(Debug)]
pub(super) struct KnownTool {
    pub(super) server: String,
    pub(super) definition: McpToolDefinition,
    /// Its name in a model's list.
    pub(super) name: String,
    pub(super) fingerprint: String,
}

impl KnownServer {
    /// The tool that the server calls so.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<KnownTool>> {
        self.tools.iter().find(|tool| tool.definition.name == name)
    }
}

impl KnownTool {
    /// What the server says that it does, fit to be shown.
    pub(super) fn description(&self) -> String {
        plain(&self.definition.description, MOST_DESCRIPTION)
    }

    /// The definition for a model: it is told whose words it reads.
    pub(super) fn registration(&self) -> ToolRegistration {
        let mut registration = self.definition.registration(&self.server);
        registration.name.clone_from(&self.name);
        registration.label = registration.label.map(|label| plain(&label, 128));
        registration.description = format!(
            "The tool {} of the MCP server {}, which describes it so: {}",
            self.definition.name,
            self.server,
            self.description()
        );
        registration
    }

    /// Whether it is within a scope.
    pub(super) fn judge(&self, scope: &ToolScope) -> Result<(), ScopeError> {
        scope.check(&self.name, &ToolSource::Mcp(self.server.clone()))
    }

    /// Whether its definition is one that is trusted.
    pub(super) async fn is_trusted(&self, pins: &ToolPins) -> Result<bool, StoreError> {
        let source = format!("mcp:{}", self.server.to_lowercase());
        let pinned = || PinnedDefinition {
            fingerprint: self.fingerprint.clone(),
            description: self.definition.description.clone(),
            parameters: self.definition.parameters.clone(),
            hints: self.definition.hints,
        };
        let (place, tool, name) = (source.as_str(), &self.definition.name, &self.name);
        let tool = PinnedTool { namespace: place, tool, source: place, name };
        pins.is_trusted(tool, &self.fingerprint, pinned).await
    }
}

/// The servers that were looked at, and the names that their tools got.
#[derive(Debug)]
pub(super) struct KnownServers {
    /// Tools whose names are taken.
    others: Arc<ToolRegistry>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By name in lower case.
    servers: HashMap<String, Arc<KnownServer>>,
    /// Who has a name: the server in lower case, and the tool.
    names: HashMap<String, (String, String)>,
}

impl KnownServers {
    pub(super) fn new(others: Arc<ToolRegistry>) -> Self {
        Self { others, state: Mutex::default() }
    }

    /// What is known of a server in the state with this fingerprint.
    pub(super) fn get(&self, server: &str, fingerprint: &str) -> Option<Arc<KnownServer>> {
        let state = self.lock();
        let known = state.servers.get(&server.to_lowercase())?;
        (known.fingerprint == fingerprint).then(|| known.clone())
    }

    /// Takes in what a server offers now. A tool keeps the name that it has; a name that another
    /// tool has gets a hash of the whole name behind it.
    pub(super) fn take_in(&self, details: McpServerDetails) -> Arc<KnownServer> {
        let McpServerDetails { server, instructions, mut tools, .. } = details;
        tools.retain(|tool| is_name(&tool.name));
        tools.truncate(MOST_TOOLS);
        let mut state = self.lock();
        let lower = server.name.to_lowercase();
        let stays = |tool: &str| tools.iter().any(|one| one.name == tool);
        state.names.retain(|_, (owner, tool)| *owner != lower || stays(tool));
        // Who gets a name that several want does not hang on the order in which the server tells: the
        // one whose own name was not altered, else the first of the alphabet.
        let mut order: Vec<_> = tools.iter().collect();
        let is_altered = |tool: &str| sanitize(tool, MAX_NAME_BYTES) != tool;
        order.sort_by_key(|tool| (is_altered(&tool.name), tool.name.as_str()));
        for definition in order {
            self.name(&mut state.names, &lower, definition);
        }
        let tools = tools.into_iter().map(|definition| {
            let name = self.name(&mut state.names, &lower, &definition);
            let fingerprint = definition_fingerprint(&definition);
            let server = server.name.clone();
            Arc::new(KnownTool { server, definition, name, fingerprint })
        });
        let known = Arc::new(KnownServer {
            tools: tools.collect(),
            name: server.name,
            fingerprint: server.fingerprint,
            instructions: instructions.map(|text| plain(&text, MOST_INSTRUCTIONS)),
        });
        state.servers.insert(lower, known.clone());
        known
    }

    /// Forgets servers that are not there any more.
    pub(super) fn follow(&self, index: &McpIndex) {
        let mut state = self.lock();
        state.servers.retain(|server, _| index.get(server).is_some());
        state.names.retain(|_, (server, _)| index.get(server).is_some());
    }

    fn name(
        &self,
        names: &mut HashMap<String, (String, String)>,
        server: &str,
        definition: &McpToolDefinition,
    ) -> String {
        let owner = (server.to_owned(), definition.name.clone());
        if let Some((name, _)) = names.iter().find(|(_, has)| **has == owner) {
            return name.clone();
        }
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
