//! Access of an agent to MCP servers, within its rules.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream};
use rockbot_contracts::{
    AgentName, Executed, SessionId,
    mcp::{McpManageError, McpManageErrorCode, McpServerDetailsRequest, McpServerSummary},
};
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex};
use rockbot_tools::{
    ApprovalRequest, Approver, ToolContext, ToolFailure, ToolPins, ToolRegistry, ToolResult,
    ToolScope, ToolSource,
    layers::{approve, pin},
};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::{
    McpParts,
    read_resources::ReadResources,
    server_cache::{CachedServer, CachedTool, ServerCache},
    session_tools::SessionTools,
};
use crate::definition::{AgentDefinition, McpExposure, McpRules};

/// Number of servers whose definitions are fetched concurrently.
const CONCURRENT_FETCHES: usize = 8;

/// Enforces the rules of one agent wherever a server is listed, fetched or called.
pub(super) struct McpAccess {
    pub(super) gateway: Arc<dyn McpGateway>,
    pub(super) rules: McpRules,
    pub(super) sessions: SessionTools,
    pub(super) read_resources: ReadResources,
    agent: AgentName,
    pins: Option<Arc<ToolPins>>,
    approver: Option<Arc<dyn Approver>>,
    cache: ServerCache,
}

impl McpAccess {
    pub(super) fn new(
        parts: McpParts,
        definition: &AgentDefinition,
        others: Arc<ToolRegistry>,
        approver: Option<Arc<dyn Approver>>,
        max_activated: usize,
    ) -> Self {
        Self {
            read_resources: ReadResources::new(parts.gateway.resource_changes()),
            gateway: parts.gateway,
            rules: definition.mcp.clone(),
            sessions: SessionTools::new(max_activated),
            agent: definition.name.clone(),
            pins: parts.pins,
            approver,
            cache: ServerCache::new(others),
        }
    }

    /// Returns the permitted servers. Drops cached servers that no longer exist.
    pub(super) fn index(&self) -> McpIndex {
        let index = self.gateway.index().borrow().clone();
        self.cache.retain_listed(&index);
        index.servers().filter(|server| self.rules.permits(&server.name)).cloned().collect()
    }

    /// Returns the names of the permitted servers that are configured and that no bridge has connected.
    pub(super) fn unconnected(&self) -> Vec<String> {
        let index = self.gateway.index().borrow().clone();
        let states = self.gateway.states();
        let states = states.borrow();
        let names = states.iter().map(|report| &report.state.name);
        let names: BTreeSet<_> = names
            .filter(|name| self.rules.permits(name) && index.get(name).is_none())
            .cloned()
            .collect();
        names.into_iter().collect()
    }

    /// Returns a server if its current definition is loaded.
    pub(super) fn loaded(&self, summary: &McpServerSummary) -> Option<Arc<CachedServer>> {
        self.cache.get(&summary.name, &summary.fingerprint)
    }

    /// Returns a server with its current tools.
    pub(super) async fn server(&self, name: &str) -> Result<Arc<CachedServer>, ToolFailure> {
        let summary = self.summary(name)?;
        if let Some(known) = self.cache.get(&summary.name, &summary.fingerprint) {
            return Ok(known);
        }
        let request =
            McpServerDetailsRequest { server_name: summary.name, tool_name: None, after: None };
        let details = self.gateway.details(request).await.map_err(tool_failure)?;
        Ok(self.cache.insert(details))
    }

    /// Returns whether a loaded server has more tools than a conversation can activate.
    fn is_large(&self, name: &str) -> bool {
        let loaded = self.summary(name).ok().and_then(|summary| self.loaded(&summary));
        loaded.is_some_and(|server| server.tools.len() > self.sessions.max_activated())
    }

    /// Returns the exposure of a permitted server's tools.
    pub(super) fn exposure(&self, name: &str) -> Option<McpExposure> {
        self.summary(name).ok().map(|summary| self.rules.exposure_of(&summary))
    }

    /// Returns the servers that respond within `time`.
    pub(super) async fn servers(
        &self,
        names: Vec<String>,
        time: Duration,
    ) -> Vec<Arc<CachedServer>> {
        let fetched: Vec<_> = names.iter().map(|name| self.fetch(name, time)).collect();
        let fetched: Vec<_> = stream::iter(fetched).buffered(CONCURRENT_FETCHES).collect().await;
        fetched.into_iter().flatten().collect()
    }

    fn fetch<'a>(
        &'a self,
        name: &'a str,
        time: Duration,
    ) -> BoxFuture<'a, Option<Arc<CachedServer>>> {
        Box::pin(async move {
            match timeout(time, self.server(name)).await {
                Ok(Ok(server)) => Some(server),
                Ok(Err(error)) => {
                    debug!(%error, "MCP server details unavailable");
                    None
                }
                Err(_) => {
                    warn!(?time, "MCP server details timed out");
                    None
                }
            }
        })
    }

    /// Returns the index entry of a permitted server.
    pub(super) fn summary(&self, name: &str) -> Result<McpServerSummary, ToolFailure> {
        if !self.rules.permits(name) {
            let reason = "this agent may not use that MCP server".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        }
        self.gateway
            .index()
            .borrow()
            .get(name)
            .cloned()
            .ok_or_else(|| ToolFailure::invalid("unknown MCP server; mcp_list_services lists all"))
    }

    /// Returns `true` if the definition of the tool is trusted.
    pub(super) async fn trusts(&self, tool: &CachedTool) -> Result<bool, ToolFailure> {
        match &self.pins {
            Some(pins) => {
                tool.is_trusted(pins).await.map_err(|error| pin::pins_unavailable(&error))
            }
            None => Ok(true),
        }
    }

    /// Returns the tools of a server that may be offered within a scope, and the names of those that await
    /// approval by an operator.
    pub(super) async fn usable(
        &self,
        server: &CachedServer,
        scope: &ToolScope,
    ) -> (Vec<Arc<CachedTool>>, Vec<String>) {
        let (mut usable, mut quarantined) = (Vec::new(), Vec::new());
        for tool in server.tools.iter().filter(|tool| tool.check_scope(scope).is_ok()) {
            match self.trusts(tool).await {
                Ok(true) => usable.push(tool.clone()),
                Ok(false) => quarantined.push(tool.definition.name.clone()),
                Err(_) => {}
            }
        }
        (usable, quarantined)
    }

    /// Calls a tool with its current definition, if that is permitted.
    async fn call_current(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let tool = self.resolve(server, tool, context).await?;
        self.send(&tool, arguments, context).await
    }

    /// Calls a tool if its definition is still the checked one, to which rules, schema and approval
    /// applied.
    pub(super) async fn call(
        &self,
        checked: &CachedTool,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let tool = self.resolve(&checked.server, &checked.definition.name, context).await?;
        if tool.fingerprint != checked.fingerprint {
            let reason = "the definition of this tool has just changed; read it with \
                          mcp_get_service_details before calling it";
            return Err(ToolFailure::NotPermitted { reason: reason.to_owned() });
        }
        self.send(&tool, arguments, context).await
    }

    async fn send(
        &self,
        tool: &CachedTool,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        self.sessions.called(&context.session_id, &tool.server);
        if self.exposure(&tool.server) == Some(McpExposure::Pinned) && self.is_large(&tool.server) {
            // Its server is not offered as a whole.
            let target = (tool.server.to_lowercase(), tool.definition.name.clone());
            self.sessions.activate(&context.session_id, target);
        }
        let name = &tool.definition.name;
        self.gateway.call(&tool.server, name, arguments, context).await
    }

    /// Calls a tool by server and name, after approval if required.
    pub(super) async fn call_by_name(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Some(approver) = &self.approver else {
            return self.call_current(server, tool, arguments, context).await;
        };
        let found = self.resolve(server, tool, context).await?;
        let question = ApprovalRequest {
            context,
            name: &found.name,
            source: &ToolSource::Mcp(found.server.clone()),
            hints: found.definition.hints,
            // The bridge derives the hints from its configuration.
            announced_for: None,
            fingerprint: &found.fingerprint,
            arguments: &arguments,
        };
        let started = Instant::now();
        approve::ask(approver.as_ref(), question).await?;
        let deadline = context.deadline + started.elapsed();
        self.call(&found, arguments, &ToolContext { deadline, ..context.clone() }).await
    }

    async fn resolve(
        &self,
        server: &str,
        tool: &str,
        context: &ToolContext,
    ) -> Result<Arc<CachedTool>, ToolFailure> {
        let fetched = async {
            let known = self.server(server).await?;
            let found = known.tool(tool).cloned().ok_or_else(|| {
                let message = "unknown tool of that MCP server; \
                               mcp_get_service_details lists all";
                ToolFailure::invalid(message)
            })?;
            found.check_scope(&context.scope)?;
            if !self.trusts(&found).await? {
                warn!(agent = %self.agent, server = %found.server,
                    "MCP tool definition changed; call denied");
                return Err(pin::not_approved());
            }
            Ok(found)
        };
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: Executed::No })
            }
            fetched = timeout(context.remaining(), fetched) => fetched.unwrap_or_else(|_| {
                let after = context.remaining();
                Err(ToolFailure::TimedOut { after, executed: Executed::No, repeatable: false })
            }),
        }
    }

    pub(super) fn forget(&self, session: &SessionId) {
        self.sessions.forget(session);
        self.read_resources.forget(session);
    }
}

/// Returns the failure of a call whose request a bridge refused.
pub(super) fn tool_failure(error: McpManageError) -> ToolFailure {
    let McpManageError { code, message, .. } = error;
    match code {
        McpManageErrorCode::NotPermitted => ToolFailure::NotPermitted { reason: message },
        McpManageErrorCode::Unavailable | McpManageErrorCode::Other => {
            ToolFailure::Unavailable { message, executed: Executed::Unknown }
        }
        McpManageErrorCode::NotFound
        | McpManageErrorCode::InvalidRequest
        | McpManageErrorCode::Conflict => ToolFailure::invalid(message),
    }
}

/// Waits for the reply of a bridge until the call is cancelled or its deadline has passed.
pub(crate) async fn within_call<T>(
    reply: impl Future<Output = Result<T, McpManageError>>,
    context: &ToolContext,
) -> Result<T, ToolFailure> {
    let after = context.remaining();
    let reply = tokio::select! {
        biased;
        () = context.cancellation.cancelled() => {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        reply = timeout(after, reply) => reply,
    };
    let timed_out = ToolFailure::TimedOut { after, executed: Executed::No, repeatable: true };
    reply.map_err(|_| timed_out)?.map_err(tool_failure)
}
