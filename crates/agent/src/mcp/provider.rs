//! The MCP tools in each model request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use futures_util::future::BoxFuture;
use rockbot_contracts::{SessionId, ToolRegistration};
use rockbot_tool_rpc::mcp::McpIndex;
use rockbot_tools::{
    Approver, Tool, ToolContext, ToolFailure, ToolRegistry, ToolResult, ToolScope,
};
use serde_json::Value;
use tracing::{debug, warn};

use super::{
    McpParts,
    access::McpAccess,
    content_tools::{self, ContentTool},
    instructions::McpInstructions,
    management,
    server_cache::{CachedServer, CachedTool},
};
use crate::{
    conversation::{McpTarget, McpUse},
    definition::{AgentDefinition, McpExposure, offers_found},
};

/// Time limit of a model request for the definitions of each server. Later ones are part of the next
/// request.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Provides the MCP tools of an agent in its own registry, which falls back to the shared one.
pub(crate) struct McpToolProvider {
    access: Arc<McpAccess>,
    registry: Arc<ToolRegistry>,
    management: Vec<Arc<dyn Tool>>,
    content: Vec<Arc<ContentTool>>,
    may_manage_servers: bool,
    /// Tools in the registry, by name.
    offered: Mutex<BTreeMap<String, Arc<CachedTool>>>,
}

impl McpToolProvider {
    /// Creates a provider that registers tools in `registry`, which falls back to `others`.
    pub(crate) fn new(
        parts: McpParts,
        definition: &AgentDefinition,
        registry: Arc<ToolRegistry>,
        others: Arc<ToolRegistry>,
        approver: Option<Arc<dyn Approver>>,
        max_activated: usize,
    ) -> Self {
        let may_manage_servers = parts.may_manage_servers;
        let access = Arc::new(McpAccess::new(parts, definition, others, approver, max_activated));
        let management = management::tools(&access, may_manage_servers);
        let content = content_tools::tools(&access);
        let offered = Mutex::default();
        Self { access, registry, management, content, may_manage_servers, offered }
    }

    /// Returns the tools that manage servers, and those for resources and prompts that a server needs.
    fn own_tools(&self, index: &McpIndex) -> Vec<Arc<dyn Tool>> {
        let useful = self.content.iter().filter(|tool| tool.is_useful(index));
        let useful = useful.map(|tool| tool.clone() as Arc<dyn Tool>);
        self.management.iter().cloned().chain(useful).collect()
    }

    /// Returns at most `limit` tools for a conversation within a scope, management tools first. They are
    /// registered when this returns, within a few seconds.
    pub(crate) fn tools<'a>(
        &'a self,
        session: &'a SessionId,
        scope: &'a ToolScope,
        limit: usize,
    ) -> BoxFuture<'a, Vec<ToolRegistration>> {
        Box::pin(self.select(session, scope, limit))
    }

    /// Returns all tools that a turn within a scope may use, including those that no conversation was offered
    /// yet, within a few seconds. Registers none of them.
    pub(crate) async fn usable_tools(&self, scope: &ToolScope) -> Vec<ToolRegistration> {
        let index = self.access.index();
        if index.is_empty() && !self.may_manage_servers {
            return Vec::new();
        }
        let own_tools = self.own_tools(&index);
        let management = own_tools.iter().map(|tool| tool.registration().clone());
        let mut usable: Vec<_> = management.filter(|tool| scope.permits(tool)).collect();
        let rules = &self.access.rules;
        let exposed =
            index.servers().filter(|server| rules.exposure_of(server) != McpExposure::Off);
        let names = exposed.map(|server| server.name.clone()).collect();
        for server in self.access.servers(names, LIST_TIMEOUT).await {
            let (tools, _) = self.access.usable(&server, scope).await;
            usable.extend(tools.iter().map(|tool| tool.registration()));
        }
        usable
    }

    async fn select(
        &self,
        session: &SessionId,
        scope: &ToolScope,
        limit: usize,
    ) -> Vec<ToolRegistration> {
        let index = self.access.index();
        self.remove_stale();
        // Without a server, the management tools are useful only to add one.
        if index.is_empty() && !self.may_manage_servers {
            return Vec::new();
        }
        let mut offered = Vec::new();
        for tool in self.own_tools(&index) {
            let registration = tool.registration();
            if self.registry.get(&registration.name).is_none()
                && let Err(error) = self.registry.register(tool.clone())
            {
                debug!(%error, "management tool registration failed");
                continue;
            }
            offered.push(registration.clone());
        }
        let session_state = self.access.sessions.get(session);
        let exposure = |server: &str| {
            let summary = index.get(server);
            summary.map_or(McpExposure::Off, |summary| self.access.rules.exposure_of(summary))
        };
        let mut activated = session_state.activated;
        activated.retain(|(server, _)| offers_found(exposure(server)));
        let is_complete = |server: &String| match exposure(server) {
            McpExposure::Off | McpExposure::Lazy => false,
            McpExposure::Eager => true,
            McpExposure::Pinned => session_state.called.contains(server),
        };
        let complete = index.servers().map(|server| server.name.to_lowercase());
        let complete: BTreeSet<_> = complete.filter(is_complete).collect();
        let names: BTreeSet<_> =
            activated.iter().map(|(server, _)| server).chain(&complete).collect();
        let names = names.into_iter().filter(|name| index.get(name).is_some()).cloned().collect();
        let servers = self.access.servers(names, LIST_TIMEOUT).await;
        let is_activated = |server: &CachedServer, tool: &CachedTool| {
            let server = server.name.to_lowercase();
            activated.iter().any(|(own, name)| *own == server && *name == tool.definition.name)
        };
        // A large server would displace everything else.
        let max_tools = self.access.sessions.max_activated();
        let is_complete = |server: &CachedServer| {
            let is_eager = exposure(&server.name) == McpExposure::Eager;
            complete.contains(&server.name.to_lowercase())
                && (is_eager || server.tools.len() <= max_tools)
        };
        let mut selected = Vec::new();
        for server in &servers {
            let (usable, _) = self.access.usable(server, scope).await;
            selected.extend(usable.into_iter().filter_map(|tool| {
                let activated = is_activated(server, &tool);
                (activated || is_complete(server)).then_some((!activated, tool))
            }));
        }
        // Activated tools come before other tools of the same server.
        selected.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
        let selected = selected.into_iter().filter_map(|(_, tool)| self.offer(&tool));
        offered.extend(selected.take(limit.saturating_sub(offered.len())));
        offered.truncate(limit);
        offered
    }

    /// Offers a conversation the tools that it found or called in other processes.
    pub(crate) fn restore(&self, session: &SessionId, used: &McpUse) {
        self.access.sessions.restore(session, used);
    }

    /// Returns the tools that were added to a conversation, and the servers that it called, since the last
    /// call of this function.
    pub(crate) fn take_unrecorded(&self, session: &SessionId) -> McpUse {
        self.access.sessions.take_unrecorded(session)
    }

    /// Returns `false` if a call needs a server that is not announced: one of `mcp_invoke_tool`, which names
    /// the server in its arguments.
    pub(crate) fn is_server_announced(&self, tool: &str, arguments: &str) -> bool {
        let server = management::called_server(tool, arguments);
        server.is_none_or(|server| self.access.gateway.index().borrow().get(&server).is_some())
    }

    /// Offers a conversation a tool, in place of its oldest one if necessary.
    pub(crate) fn activate(&self, session: &SessionId, tool: McpTarget) {
        self.access.sessions.activate(session, tool);
    }

    /// Returns the tool of a server that is registered under a name.
    pub(crate) fn target(&self, name: &str) -> Option<McpTarget> {
        self.offered.lock().get(name).map(|tool| target(tool))
    }

    /// Returns the name under which a tool of a server is registered.
    pub(crate) fn name(&self, wanted: &McpTarget) -> Option<String> {
        let offered = self.offered.lock();
        let found = offered.values().find(|tool| target(tool) == *wanted);
        found.map(|tool| tool.name.clone())
    }

    /// Returns the instructions of the servers in use, as a part of the context.
    pub(crate) fn instructions(&self) -> Arc<McpInstructions> {
        Arc::new(McpInstructions::new(self.access.clone()))
    }

    /// Drops the state of a conversation that ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.access.forget(session);
    }

    /// Registers a tool, or replaces its previous definition.
    fn offer(&self, tool: &Arc<CachedTool>) -> Option<ToolRegistration> {
        let registration = tool.registration();
        let mut offered = self.offered.lock();
        if offered.get(&tool.name).is_some_and(|known| known.fingerprint == tool.fingerprint) {
            return Some(registration);
        }
        if offered.remove(&tool.name).is_some() {
            self.registry.unregister(&tool.name);
        }
        let server_tool = ServerTool {
            registration: registration.clone(),
            tool: tool.clone(),
            access: self.access.clone(),
        };
        match self.registry.register(Arc::new(server_tool)) {
            Ok(()) => {
                offered.insert(tool.name.clone(), tool.clone());
                Some(registration)
            }
            Err(error) => {
                warn!(%error, "MCP tool rejected");
                None
            }
        }
    }

    /// Removes the tools of servers that no longer exist.
    fn remove_stale(&self) {
        let index = self.access.gateway.index().borrow().clone();
        let mut offered = self.offered.lock();
        offered.retain(|name, _| {
            let stays =
                self.registry.get(name).is_some_and(|tool| match &tool.registration().source {
                    rockbot_tools::ToolSource::Mcp(server) => index.get(server).is_some(),
                    _ => false,
                });
            if !stays {
                self.registry.unregister(name);
            }
            stays
        });
    }
}

fn target(tool: &CachedTool) -> McpTarget {
    (tool.server.to_lowercase(), tool.definition.name.clone())
}

/// A tool of a server under its own name.
struct ServerTool {
    registration: ToolRegistration,
    tool: Arc<CachedTool>,
    access: Arc<McpAccess>,
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
        Box::pin(self.access.call(&self.tool, arguments, context))
    }

    fn enforces_own_deadline(&self) -> bool {
        true
    }

    fn deduplicates_calls(&self) -> bool {
        self.access.gateway.deduplicates_calls()
    }
}
