//! What a tool is: a definition for the model, and a call.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, SessionId, ToolCallId, ToolRegistration};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{failure::ToolFailure, layers::CallPolicy, result::ToolResult, scope::ToolScope};

/// Something a model can call by name.
///
/// `arguments` come from the model and have been validated against the schema; everything else the
/// tool may rely on comes from the system, in the [`ToolContext`].
///
/// # Cancellation
/// The future is dropped when the deadline passes or the call is cancelled; work that outlives a
/// future (child processes, remote calls) must be stopped by a guard or on
/// [`ToolContext::cancellation`].
pub trait Tool: Send + Sync + 'static {
    /// Name, description, schema, source and hints.
    fn registration(&self) -> &ToolRegistration;

    /// Runs the tool.
    ///
    /// # Errors
    /// A failure becomes a result that the model can read and correct itself from, so its message
    /// says what to do differently.
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

    /// Whether the tool ends by its deadline, and on cancellation, by itself, because it can then
    /// say whether it ran. Default false: its future is dropped instead.
    fn keeps_deadline(&self) -> bool {
        false
    }

    /// Whether its definition is what another process announces, so that it may change at any time.
    /// Default false.
    fn is_announced(&self) -> bool {
        false
    }

    /// What whoever made the tool says about its calls. What an operator says of it goes before.
    /// Asked on every call. Default nothing.
    fn policy(&self) -> Option<CallPolicy> {
        None
    }
}

/// What the system says about a call. Never read from a model's arguments.
#[derive(Clone)]
pub struct ToolContext {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The name it was called by.
    pub tool_name: Arc<str>,
    /// The conversation.
    pub session_id: SessionId,
    /// Who asks: the agent, or the service that acts for a person.
    pub agent: AgentName,
    /// When the call must have ended.
    pub deadline: Instant,
    /// Cancelled when the asker gives up; a child of the turn's token.
    pub cancellation: CancellationToken,
    /// Whether the same call may have run before: it was delivered again, and nobody knows how far
    /// it had come. Only a tool that may run again sees this.
    pub may_have_run: bool,
    /// Where progress and partial results go; nobody listens when absent.
    pub updates: Option<UpdateSink>,
    /// What the work that this call belongs to may use. A tool that calls other tools hands it on.
    pub scope: Arc<ToolScope>,
}

/// Takes a tool's signs of life. Must not block.
pub type UpdateSink = Arc<dyn Fn(ToolUpdate) + Send + Sync>;

/// A sign of life from a running tool: for people and logs, never for the model.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolUpdate {
    /// A line of text.
    Progress(String),
    /// What the result would be if the tool ended now.
    Partial(ToolResult),
}

impl ToolContext {
    /// The default time-out of a tool call.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

    /// A context for a fresh call that may use everything, with the default time-out and nobody
    /// listening.
    #[must_use]
    pub fn new(tool_name: &str, session_id: SessionId, agent: AgentName) -> Self {
        Self {
            tool_call_id: ToolCallId::generate(),
            tool_name: tool_name.into(),
            session_id,
            agent,
            deadline: Instant::now() + Self::DEFAULT_TIMEOUT,
            cancellation: CancellationToken::new(),
            may_have_run: false,
            updates: None,
            scope: ToolScope::everything(),
        }
    }

    /// Says a line to whoever watches the call.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(updates) = &self.updates {
            updates(ToolUpdate::Progress(text.into()));
        }
    }

    /// Shows a partial result to whoever watches the call.
    pub fn partial(&self, result: ToolResult) {
        if let Some(updates) = &self.updates {
            updates(ToolUpdate::Partial(result));
        }
    }

    /// What is left until the deadline.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("tool_call_id", &self.tool_call_id)
            .field("tool_name", &self.tool_name)
            .field("session_id", &self.session_id)
            .field("agent", &self.agent)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
