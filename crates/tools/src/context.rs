//! The context of a call: what the system states about it, and where its updates go.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, SessionId, ToolCallId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{result::ToolResult, scope::ToolScope};

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
    /// Cancelled when the caller cancels the call; a child of the turn's token.
    pub cancellation: CancellationToken,
    /// True if an earlier delivery of the same call may have run, to an unknown extent. Only set for
    /// tools that may run again.
    pub may_have_run: bool,
    /// Where progress and partial results go; dropped when absent.
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

    /// Returns the context of a new call with an unrestricted scope, the default timeout and no watchers.
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

    /// Reports a line of progress to the watchers of the call.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(updates) = &self.updates {
            updates(ToolUpdate::Progress(text.into()));
        }
    }

    /// Reports a partial result to the watchers of the call.
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
