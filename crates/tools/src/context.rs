//! Context of a call.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, InputRequest, InputResponse, SessionId, ToolCallId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{budget::Budget, result::ToolResult, scope::ToolScope};

/// Facts about a call that the system provides. Never read from a model's arguments.
#[derive(Clone)]
pub struct ToolContext {
    /// Identifier of the call.
    pub tool_call_id: ToolCallId,
    /// Name that the tool was called by.
    pub tool_name: Arc<str>,
    /// Conversation that the call belongs to.
    pub session_id: SessionId,
    /// Caller: an agent, or the service that acts for a user.
    pub agent: AgentName,
    /// Time by which the call must finish.
    pub deadline: Instant,
    /// Cancelled when the caller cancels the call. A child of the turn's token.
    pub cancellation: CancellationToken,
    /// `true` if an earlier delivery of the call may have run, completely or in part. Set only for
    /// tools that may run again, and for calls that the tool continues.
    pub may_have_run: bool,
    /// Attempt at the call, from 1. Above 1 another process may have made the call under the same
    /// identifier.
    pub attempt: u32,
    /// `true` if the identifier comes from a client's key, under which another process may have made the call
    /// before. `false` for a tool without effects.
    pub has_client_key: bool,
    /// Cancelled when another process continues the turn. The call is dropped then, but must not be
    /// cancelled where it runs: the other process makes it again under the same identifier.
    pub handover: CancellationToken,
    /// Receiver of progress and partial results. They are dropped when this is `None`.
    pub updates: Option<UpdateSink>,
    /// Tools that the turn may use. A tool that calls other tools passes it on.
    pub scope: Arc<ToolScope>,
    /// Identifier of the first call of the same model response, if a model requested the call.
    pub step: Option<ToolCallId>,
    /// `true` if the caller reads no later message: a tool that delegates work returns its result.
    pub awaits_work: bool,
    /// Budget of the turn, if it has one. A tool that starts turns grants them a share of it.
    pub budget: Option<Budget>,
    /// Port to the user of the call; `None` if no user can respond.
    pub input: Option<Arc<dyn UserInput>>,
    /// Time that the call has waited for a user.
    pub approval_time: ApprovalTime,
}

/// Port to the user of a call, for tools that need input from a person.
pub trait UserInput: Send + Sync {
    /// Asks the user, and waits at most `limit` for the response, which is valid for the request. The
    /// request counts as cancelled when it cannot be shown, when it expires, and when the user leaves.
    ///
    /// # Cancellation
    /// The request is withdrawn when the future is dropped.
    fn ask(&self, request: InputRequest, limit: Duration) -> BoxFuture<'_, InputResponse>;
}

/// Time that a call has waited for a user's approval. The clones of its context share it.
#[derive(Debug, Clone, Default)]
pub struct ApprovalTime(Arc<AtomicU64>);

impl ApprovalTime {
    /// Adds the time of one approval.
    pub(crate) fn add(&self, waited: Duration) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the time of all approvals.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Receives a tool's updates. Must not block.
pub type UpdateSink = Arc<dyn Fn(ToolUpdate) + Send + Sync>;

/// An update from a running tool, for users and logs; never sent to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolUpdate {
    /// A line of progress.
    Progress(String),
    /// The result so far.
    Partial(ToolResult),
}

impl ToolContext {
    /// Default timeout of a call.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

    /// Creates the context of a new call with an unrestricted scope and the default timeout.
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
            attempt: 1,
            has_client_key: false,
            handover: CancellationToken::new(),
            updates: None,
            scope: ToolScope::everything(),
            step: None,
            awaits_work: false,
            budget: None,
            input: None,
            approval_time: ApprovalTime::default(),
        }
    }

    /// Reports a line of progress.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(updates) = &self.updates {
            updates(ToolUpdate::Progress(text.into()));
        }
    }

    /// Reports a partial result.
    pub fn partial(&self, result: ToolResult) {
        if let Some(updates) = &self.updates {
            updates(ToolUpdate::Partial(result));
        }
    }

    /// Returns the time left until the deadline.
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
