//! Which tools of MCP servers a model is offered, request by request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{SessionId, ToolRegistration};
use rockbot_tools::{
    Approver, Tool, ToolContext, ToolFailure, ToolRegistry, ToolResult, ToolScope,
};
use serde_json::Value;
use tracing::debug;

use super::{
    McpParts,
    desk::Desk,
    known::{KnownServer, KnownTool},
    management,
};
use crate::definition::{AgentDefinition, McpExposure};

/// How long a request to the model waits for servers to say what they offer. What comes later is
/// in the next request.
const OFFERED_WITHIN: Duration = Duration::from_secs(5);

/// An agent's tools of MCP servers. They are in a registry of the agent's own, in front of the one
/// that it shares.
pub(crate) struct McpOffer {
    desk: Arc<Desk>,
    registry: Arc<ToolRegistry>,
    management: Vec<Arc<dyn Tool>>,
    may_register: bool,
    /// Names of tools in the registry, and which definition each has.
    offered: Mutex<BTreeMap<String, String>>,
}

impl McpOffer {
    /// Tools go into `registry`, which is in front of `others`.
    pub(crate) fn new(
        parts: McpParts,
        definition: &AgentDefinition,
        registry: Arc<ToolRegistry>,
        others: Arc<ToolRegistry>,
        approver: Option<Arc<dyn Approver>>,
        most_activated: usize,
    ) -> Self {
        let may_register = parts.may_register;
        let desk = Arc::new(Desk::new(parts, definition, others, approver, most_activated));
        let management = management::tools(&desk, may_register);
        Self { desk, registry, management, may_register, offered: Mutex::default() }
    }

    /// What is offered to a conversation within a scope now, at most `most` tools, those that manage servers
    /// first. They are in the registry when this returns, within a few seconds.
    pub(crate) fn tools<'a>(
        &'a self,
        session: &'a SessionId,
        scope: &'a ToolScope,
        most: usize,
    ) -> BoxFuture<'a, Vec<ToolRegistration>> {
        Box::pin(self.choose(session, scope, most))
    }

    async fn choose(
        &self,
        session: &SessionId,
        scope: &ToolScope,
        most: usize,
    ) -> Vec<ToolRegistration> {
        let index = self.desk.index();
        self.withdraw();
        // Without a server there is nothing to manage, but one to add.
        if index.is_empty() && !self.may_register {
            return Vec::new();
        }
        let mut offered = Vec::new();
        for tool in &self.management {
            let registration = tool.registration();
            if self.registry.get(&registration.name).is_none()
                && let Err(error) = self.registry.register(tool.clone())
            {
                debug!(%error, "a tool that manages MCP servers is not offered");
                continue;
            }
            offered.push(registration.clone());
        }
        let at_hand = self.desk.sessions.at_hand(session);
        let (activated, whole): (Vec<_>, BTreeSet<_>) = match self.desk.rules.exposure {
            McpExposure::Off => (Vec::new(), BTreeSet::new()),
            McpExposure::Eager => {
                (Vec::new(), index.servers().map(|server| server.name.to_lowercase()).collect())
            }
            McpExposure::Lazy => (at_hand.activated, BTreeSet::new()),
            McpExposure::Pinned => (at_hand.activated, at_hand.called.into_iter().collect()),
        };
        let names: BTreeSet<_> = activated.iter().map(|(server, _)| server).chain(&whole).collect();
        let names = names.into_iter().filter(|name| index.get(name).is_some()).cloned().collect();
        let servers = self.desk.servers(names, OFFERED_WITHIN).await;
        let is_activated = |server: &KnownServer, tool: &KnownTool| {
            let server = server.name.to_lowercase();
            activated.iter().any(|(own, name)| *own == server && *name == tool.definition.name)
        };
        let is_whole = |server: &KnownServer| whole.contains(&server.name.to_lowercase());
        let mut chosen = Vec::new();
        for server in &servers {
            let (usable, _) = self.desk.usable(server, scope).await;
            chosen.extend(usable.into_iter().filter_map(|tool| {
                let activated = is_activated(server, &tool);
                (activated || is_whole(server)).then_some((!activated, tool))
            }));
        }
        // What was searched for comes before what merely shares a server.
        chosen.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
        let chosen = chosen.into_iter().filter_map(|(_, tool)| self.put(&tool));
        offered.extend(chosen.take(most.saturating_sub(offered.len())));
        offered.truncate(most);
        offered
    }

    /// The conversation ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.desk.forget(session);
    }

    /// Puts a tool into the registry, in place of what it was before.
    fn put(&self, tool: &Arc<KnownTool>) -> Option<ToolRegistration> {
        let registration = tool.registration();
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if offered.get(&tool.name) == Some(&tool.fingerprint) {
            return Some(registration);
        }
        if offered.remove(&tool.name).is_some() {
            self.registry.unregister(&tool.name);
        }
        let server_tool = ServerTool {
            registration: registration.clone(),
            tool: tool.clone(),
            desk: self.desk.clone(),
        };
        match self.registry.register(Arc::new(server_tool)) {
            Ok(()) => {
                offered.insert(tool.name.clone(), tool.fingerprint.clone());
                Some(registration)
            }
            Err(error) => {
                debug!(%error, "a tool of an MCP server is not offered");
                None
            }
        }
    }

    /// Takes the tools of servers that are gone out of the registry.
    fn withdraw(&self) {
        let index = self.desk.gateway.index().borrow().clone();
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A tool of a server under a name of its own.
struct ServerTool {
    registration: ToolRegistration,
    tool: Arc<KnownTool>,
    desk: Arc<Desk>,
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
        Box::pin(self.desk.call(&self.tool, arguments, context))
    }

    fn keeps_deadline(&self) -> bool {
        true
    }
}
