//! The origin of a turn.

use std::{fmt, sync::Arc};

use rockbot_contracts::{MessageId, RoutingKey, SessionId, TraceContext};
use rockbot_tools::{Budget, BudgetGrant, EntryPoint, ToolFilter, ToolScope};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    conversation::{TaskEntry, TaskResultsEntry},
    event::ProgressSink,
};

/// Reason and requester of a turn. The origin determines which tools the turn may use.
#[derive(Debug, Clone)]
pub struct TurnOrigin {
    /// The reason for the turn.
    pub entry: EntryPoint,
    /// The calling turn, if another agent called this agent.
    pub parent: Option<ParentTurn>,
    /// The bus message that started the turn. Message ids are ordered by time, so a conversation can detect
    /// messages that were sent before a cancel but arrive after it. An id that was answered before gets the
    /// recorded answer.
    pub message: Option<MessageId>,
    /// Address of the replies, which is recorded for the process that continues the turn. A message with
    /// an address stays marked as unfinished until its answer was published.
    pub reply_to: Option<RoutingKey>,
    /// Sender of the message, as validated by the broker.
    pub sender: Option<Arc<str>>,
    /// The client of the user shows requests of MCP servers for input.
    pub(crate) accepts_input: bool,
    /// The delegated work that the turn does, or whose results it reads.
    pub(crate) work: Option<Arc<DelegatedWork>>,
    /// Limits of a turn that does a step of a plan, or the task of a sub-agent that is a tool.
    pub(crate) step: Option<Arc<StepLimits>>,
}

/// Limits of a turn that does one step of a plan, or the task of a sub-agent that is a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepLimits {
    /// The tools that it may use.
    pub(crate) tools: ToolFilter,
    /// Number of requests with tools.
    pub(crate) iterations: u32,
    /// Replaces the system prompt of the agent.
    pub(crate) prompt: Option<String>,
    /// Replaces the model of the agent.
    pub(crate) model: Option<String>,
}

/// Cancels a turn that a call started when the call is dropped, unless another process continues it.
pub(crate) struct ChildGuard {
    cancellation: CancellationToken,
    handover: CancellationToken,
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if !self.handover.is_cancelled() {
            self.cancellation.cancel();
        }
    }
}

/// Delegated work that a turn does, or whose results it reads.
pub(crate) struct DelegatedWork {
    pub(crate) role: WorkRole,
    /// The conversation that delegated it.
    pub(crate) root: SessionId,
    /// Shows approval requests to the user of that conversation; `None` without a user.
    pub(crate) requests: Option<ProgressSink>,
    /// Trace of the turn that delegated it, which the turn continues.
    pub(crate) trace: TraceContext,
}

/// The part of a turn in delegated work.
pub(crate) enum WorkRole {
    /// It does the work.
    Task {
        entry: TaskEntry,
        budget: Budget,
        /// Cancelled when the work is.
        cancellation: CancellationToken,
    },
    /// It reads the results.
    FoldBack(TaskResultsEntry),
}

/// A turn that calls another agent.
#[derive(Debug, Clone)]
pub struct ParentTurn {
    /// The conversation of the turn.
    pub session: SessionId,
    /// The tools that the turn may use, and its own parents. The sub-agent may use no other tool.
    pub scope: Arc<ToolScope>,
    /// The share of its budget that it granted.
    pub budget: Arc<BudgetGrant>,
    /// Deadline for the answer.
    pub deadline: Instant,
    /// Cancelled when the turn no longer needs the answer.
    pub cancellation: CancellationToken,
    /// Cancelled when another process continues the turn, and this turn with it.
    pub handover: CancellationToken,
}

impl ParentTurn {
    /// Returns the guard for the call that starts the turn.
    pub(crate) fn guard(&self) -> ChildGuard {
        ChildGuard { cancellation: self.cancellation.clone(), handover: self.handover.clone() }
    }
}

impl TurnOrigin {
    /// Creates an origin without a parent.
    #[must_use]
    pub const fn new(entry: EntryPoint) -> Self {
        Self {
            entry,
            parent: None,
            message: None,
            reply_to: None,
            sender: None,
            accepts_input: false,
            work: None,
            step: None,
        }
    }

    /// Sets the bus message that started the turn.
    #[must_use]
    pub fn with_message(self, message: MessageId) -> Self {
        Self { message: Some(message), ..self }
    }

    /// Sets the address of the replies.
    #[must_use]
    pub fn with_reply_to(self, reply_to: RoutingKey) -> Self {
        Self { reply_to: Some(reply_to), ..self }
    }

    /// Sets the sender, as validated by the broker.
    #[must_use]
    pub fn with_sender(self, sender: Arc<str>) -> Self {
        Self { sender: Some(sender), ..self }
    }

    /// Creates the origin of a turn that another agent calls.
    #[must_use]
    pub fn from_parent(parent: ParentTurn) -> Self {
        Self { parent: Some(parent), ..Self::new(EntryPoint::Subagent) }
    }

    /// Waits until another process continues the parent. Never returns without a parent.
    pub(crate) async fn parent_handed_over(&self) {
        match &self.parent {
            Some(parent) => parent.handover.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the parent cancels, or the delegated work is cancelled. Never returns without either.
    pub(crate) async fn parent_cancelled(&self) {
        match (&self.parent, self.task()) {
            (Some(parent), _) => parent.cancellation.cancelled().await,
            (None, Some((_, _, cancellation))) => cancellation.cancelled().await,
            (None, None) => std::future::pending().await,
        }
    }

    /// Returns the limits, the budget and the cancellation of the delegated work that the turn does.
    pub(crate) fn task(&self) -> Option<(&TaskEntry, &Budget, &CancellationToken)> {
        match &self.work.as_ref()?.role {
            WorkRole::Task { entry, budget, cancellation } => Some((entry, budget, cancellation)),
            WorkRole::FoldBack(_) => None,
        }
    }

    /// Returns the results that the turn reads.
    pub(crate) fn fold_back(&self) -> Option<&TaskResultsEntry> {
        match &self.work.as_ref()?.role {
            WorkRole::FoldBack(entry) => Some(entry),
            WorkRole::Task { .. } => None,
        }
    }
}

impl DelegatedWork {
    /// Creates the results that a turn of the conversation `root` reads, when no user attends it.
    pub(crate) fn results(root: &SessionId, entry: &TaskResultsEntry) -> Self {
        let role = WorkRole::FoldBack(entry.clone());
        Self { role, root: root.clone(), requests: None, trace: TraceContext::default() }
    }
}

impl fmt::Debug for DelegatedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegatedWork").field("root", &self.root).finish_non_exhaustive()
    }
}
