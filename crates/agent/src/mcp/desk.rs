//! What an agent may do with MCP servers, and how it does it.

use std::{sync::Arc, time::Duration};

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
    McpParts, McpRules,
    known::{KnownServer, KnownServers, KnownTool},
    sessions::Sessions,
};
use crate::definition::AgentDefinition;

/// Servers that are asked for their definitions at once.
const ASKED_AT_ONCE: usize = 8;

/// The rules of one agent, kept wherever a server is listed, looked at or called.
pub(super) struct Desk {
    pub(super) gateway: Arc<dyn McpGateway>,
    pub(super) rules: McpRules,
    pub(super) sessions: Sessions,
    agent: AgentName,
    pins: Option<Arc<ToolPins>>,
    approver: Option<Arc<dyn Approver>>,
    known: KnownServers,
}

impl Desk {
    pub(super) fn new(
        parts: McpParts,
        definition: &AgentDefinition,
        others: Arc<ToolRegistry>,
        approver: Option<Arc<dyn Approver>>,
        most_activated: usize,
    ) -> Self {
        Self {
            gateway: parts.gateway,
            rules: definition.mcp.clone(),
            sessions: Sessions::new(most_activated),
            agent: definition.name.clone(),
            pins: parts.pins,
            approver,
            known: KnownServers::new(others),
        }
    }

    /// The servers that there are and that may be used. What is known of others is forgotten.
    pub(super) fn index(&self) -> McpIndex {
        let index = self.gateway.index().borrow().clone();
        self.known.follow(&index);
        index.servers().filter(|server| self.rules.permits(&server.name)).cloned().collect()
    }

    /// A server with its tools as they are now.
    pub(super) async fn server(&self, name: &str) -> Result<Arc<KnownServer>, ToolFailure> {
        let summary = self.summary(name)?;
        if let Some(known) = self.known.get(&summary.name, &summary.fingerprint) {
            return Ok(known);
        }
        let request = McpServerDetailsRequest { server_name: summary.name, tool_name: None };
        let details = self.gateway.details(request).await.map_err(failure)?;
        Ok(self.known.take_in(details))
    }

    /// Those of these servers that say within `time` what they offer.
    pub(super) async fn servers(
        &self,
        names: Vec<String>,
        time: Duration,
    ) -> Vec<Arc<KnownServer>> {
        let looked: Vec<_> = names.iter().map(|name| self.look(name, time)).collect();
        let looked: Vec<_> = stream::iter(looked).buffered(ASKED_AT_ONCE).collect().await;
        looked.into_iter().flatten().collect()
    }

    fn look<'a>(
        &'a self,
        name: &'a str,
        time: Duration,
    ) -> BoxFuture<'a, Option<Arc<KnownServer>>> {
        Box::pin(async move {
            match timeout(time, self.server(name)).await {
                Ok(Ok(server)) => Some(server),
                Ok(Err(error)) => {
                    debug!(%error, "an MCP server is not looked at");
                    None
                }
                Err(_) => {
                    warn!(?time, "an MCP server does not say in time what it offers");
                    None
                }
            }
        })
    }

    fn summary(&self, name: &str) -> Result<McpServerSummary, ToolFailure> {
        if !self.rules.permits(name) {
            let reason = "this agent may not use that MCP server".to_owned();
            return Err(ToolFailure::NotPermitted { reason });
        }
        self.gateway.index().borrow().get(name).cloned().ok_or_else(|| {
            ToolFailure::invalid("there is no MCP server of that name; mcp_list_services tells all")
        })
    }

    /// Whether the tool has a definition that is trusted.
    pub(super) async fn trusts(&self, tool: &KnownTool) -> Result<bool, ToolFailure> {
        match &self.pins {
            Some(pins) => {
                tool.is_trusted(pins).await.map_err(|error| pin::pins_unavailable(&error))
            }
            None => Ok(true),
        }
    }

    /// The tools of a server that may be offered within a scope now, and the names of those that wait for an
    /// operator.
    pub(super) async fn usable(
        &self,
        server: &KnownServer,
        scope: &ToolScope,
    ) -> (Vec<Arc<KnownTool>>, Vec<String>) {
        let (mut usable, mut quarantined) = (Vec::new(), Vec::new());
        for tool in server.tools.iter().filter(|tool| tool.judge(scope).is_ok()) {
            match self.trusts(tool).await {
                Ok(true) => usable.push(tool.clone()),
                Ok(false) => quarantined.push(tool.definition.name.clone()),
                Err(_) => {}
            }
        }
        (usable, quarantined)
    }

    /// Calls a tool by its server and name as it is defined now, if that may be.
    async fn call_now(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let tool = self.callable(server, tool, context).await?;
        self.send(&tool, arguments, context).await
    }

    /// Calls a tool with the definition that was judged, if it still has it: rules, schema and
    /// people went by that one.
    pub(super) async fn call(
        &self,
        judged: &KnownTool,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let tool = self.callable(&judged.server, &judged.definition.name, context).await?;
        if tool.fingerprint != judged.fingerprint {
            let reason = "the definition of this tool changed a moment ago; look at it again with \
                          mcp_get_service_details before you call it";
            return Err(ToolFailure::NotPermitted { reason: reason.to_owned() });
        }
        self.send(&tool, arguments, context).await
    }

    async fn send(
        &self,
        tool: &KnownTool,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        self.sessions.called(&context.session_id, &tool.server);
        let name = &tool.definition.name;
        self.gateway.call(&tool.server, name, arguments, context).await
    }

    /// Calls a tool that the model named by its server and name, after whoever must be asked about
    /// it was.
    pub(super) async fn call_by_name(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let Some(approver) = &self.approver else {
            return self.call_now(server, tool, arguments, context).await;
        };
        let found = self.callable(server, tool, context).await?;
        let question = ApprovalRequest {
            context,
            name: &found.name,
            source: &ToolSource::Mcp(found.server.clone()),
            hints: found.definition.hints,
            fingerprint: &found.fingerprint,
            arguments: &arguments,
        };
        let asked = Instant::now();
        approve::ask(approver.as_ref(), question).await?;
        let deadline = context.deadline + asked.elapsed();
        self.call(&found, arguments, &ToolContext { deadline, ..context.clone() }).await
    }

    async fn callable(
        &self,
        server: &str,
        tool: &str,
        context: &ToolContext,
    ) -> Result<Arc<KnownTool>, ToolFailure> {
        let looked = async {
            let known = self.server(server).await?;
            let found = known.tool(tool).cloned().ok_or_else(|| {
                let message = "that MCP server has no tool of that name; \
                               mcp_get_service_details tells all";
                ToolFailure::invalid(message)
            })?;
            if let Err(refused) = found.judge(&context.scope) {
                return Err(ToolFailure::NotPermitted { reason: refused.to_string() });
            }
            if !self.trusts(&found).await? {
                warn!(agent = %self.agent, server = %found.server,
                    "the definition of an MCP tool changed; not calling it");
                return Err(pin::not_approved());
            }
            Ok(found)
        };
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: Executed::No })
            }
            looked = timeout(context.remaining(), looked) => looked.unwrap_or_else(|_| {
                let after = context.remaining();
                Err(ToolFailure::TimedOut { after, executed: Executed::No, repeatable: false })
            }),
        }
    }

    pub(super) fn forget(&self, session: &SessionId) {
        self.sessions.forget(session);
    }
}

/// A bridge's refusal as the failure of a call.
pub(super) fn failure(error: McpManageError) -> ToolFailure {
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
