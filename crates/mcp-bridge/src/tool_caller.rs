//! Calls of a server's tools.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;
use rockbot_contracts::Executed;
use rockbot_tools::{CallPolicy, ToolContext, ToolFailure, ToolResult};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    call_error::CallError,
    config::ServerConfig,
    session::DEFAULT_IDLE,
    state::{ActiveSession, ServerState},
    trace::RequestTrace,
};

/// The time limit for a call that waits for a session to be opened.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for a call that waits for the session after an expired one.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of calls, which may change while the server runs.
pub(crate) struct CallSettings {
    pub(crate) policy: CallPolicy,
    /// Logs requests.
    pub(crate) trace: bool,
}

/// Calls tools of a server in its current session.
#[derive(Clone)]
pub(crate) struct ToolCaller {
    config: Arc<ServerConfig>,
    state: watch::Receiver<ServerState>,
    settings: Arc<RwLock<CallSettings>>,
}

impl ToolCaller {
    /// Creates a caller that follows `state`.
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        state: watch::Receiver<ServerState>,
        settings: CallSettings,
    ) -> Self {
        Self { config, state, settings: Arc::new(RwLock::new(settings)) }
    }

    /// Replaces the settings of this caller and its clones, for the next calls.
    pub(crate) fn set_settings(&self, settings: CallSettings) {
        *self.settings.write() = settings;
    }

    /// Starts the log line of a request.
    pub(crate) fn start_trace(&self, method: &'static str) -> RequestTrace<'_> {
        RequestTrace::start(&self.config.name, self.settings.read().trace, method)
    }

    /// Returns the configuration of the server.
    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Returns the states of the server.
    pub(crate) fn states(&self) -> &watch::Receiver<ServerState> {
        &self.state
    }

    /// Returns the policy for calls of the server's tools.
    pub(crate) fn policy(&self) -> CallPolicy {
        self.settings.read().policy.clone()
    }

    /// Calls a tool by its name on the server.
    ///
    /// # Errors
    /// See [`ToolFailure`].
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        call: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let mut active = self.active_session(call).await?;
        let mut outcome = self.call_in(&active, tool, &arguments, call).await;
        if matches!(outcome, Err(CallError::SessionExpired)) {
            // The server rejected the call because its session had expired, so it did not run.
            active = self.session_after(&active, call).await?;
            outcome = self.call_in(&active, tool, &arguments, call).await;
        }
        while matches!(outcome, Err(CallError::TaskDetached)) {
            // The server runs it. Each session follows its task once.
            let context = ToolContext { may_have_run: true, ..call.clone() };
            let next = self.session_that_follows(&active, call).await;
            active = next.map_err(ToolFailure::into_possibly_executed)?;
            outcome = Box::pin(self.call_in(&active, tool, &arguments, &context)).await;
        }
        outcome.map_err(CallError::into_failure)
    }

    async fn call_in(
        &self,
        active: &ActiveSession,
        tool: &str,
        arguments: &Value,
        call: &ToolContext,
    ) -> Result<ToolResult, CallError> {
        let not_found = || ToolFailure::NotFound { name: tool.chars().take(128).collect() };
        // Denied tools are not listed; this check does not rely on the list.
        let definition = active.tools.get(tool).filter(|_| self.config.permits(tool));
        let definition = definition.ok_or_else(not_found)?;
        let idle = self.config.request_timeout.unwrap_or(DEFAULT_IDLE);
        let trace = self.start_trace("tools/call");
        let outcome = active.session.call(definition, arguments, call, idle).await;
        let sent = if trace.is_enabled() { arguments.to_string().len() } else { 0 };
        trace.call_ended(tool, sent, &outcome);
        let result = outcome.map_err(CallError::without_hidden_text)?.without_hidden_text();
        let treatment = self.config.output_violations;
        Ok(active.outputs.check(definition, treatment, result, call).await?)
    }

    /// Returns the session; waits up to [`SESSION_TIMEOUT`] for one that is being opened.
    pub(crate) async fn active_session(
        &self,
        call: &ToolContext,
    ) -> Result<Arc<ActiveSession>, ToolFailure> {
        let is_settled =
            |state: &ServerState| !matches!(state, ServerState::Connecting { failures: 0, .. });
        self.session_when(is_settled, SESSION_TIMEOUT, call).await
    }

    /// Returns the session after `expired`; waits up to [`RENEWAL_TIMEOUT`] for it.
    async fn session_after(
        &self,
        expired: &Arc<ActiveSession>,
        call: &ToolContext,
    ) -> Result<Arc<ActiveSession>, ToolFailure> {
        let is_renewed = |state: &ServerState| match state {
            // Its tools may have been listed again.
            ServerState::Ready(active) => !Arc::ptr_eq(&active.session, &expired.session),
            ServerState::Connecting { failures, .. } => *failures > 0,
            _ => true,
        };
        self.session_when(is_renewed, RENEWAL_TIMEOUT, call).await
    }

    /// Returns the session after one that was lost during a task; waits for it until the deadline.
    async fn session_that_follows(
        &self,
        lost: &Arc<ActiveSession>,
        call: &ToolContext,
    ) -> Result<Arc<ActiveSession>, ToolFailure> {
        let is_next = |state: &ServerState| match state {
            ServerState::Ready(active) => !Arc::ptr_eq(&active.session, &lost.session),
            ServerState::Connecting { .. } => false,
            _ => true,
        };
        self.session_when(is_next, call.remaining(), call).await
    }

    /// Returns the session once its state matches, at most after `limit`.
    async fn session_when(
        &self,
        matches: impl FnMut(&ServerState) -> bool,
        limit: Duration,
        call: &ToolContext,
    ) -> Result<Arc<ActiveSession>, ToolFailure> {
        let mut state = self.state.clone();
        let until = call.deadline.min(Instant::now() + limit);
        let ready = state.wait_for(matches);
        let executed = Executed::No;
        let state = tokio::select! {
            state = timeout_at(until, ready) => state,
            () = call.cancellation.cancelled() => {
                return Err(ToolFailure::Cancelled { executed });
            }
        };
        let name = &self.config.name;
        let message = match state {
            Ok(Ok(state)) => match &*state {
                ServerState::Ready(active) => return Ok(active.clone()),
                ServerState::OwnedElsewhere { .. } => {
                    format!("MCP server {name} is owned by another bridge")
                }
                ServerState::Stopped => format!("MCP server {name} was removed"),
                ServerState::Connecting { .. } => {
                    format!("MCP server {name} is not connected; try again later")
                }
            },
            _ => format!("MCP server {name} is not connected; try again later"),
        };
        Err(ToolFailure::Unavailable { message, executed })
    }
}
