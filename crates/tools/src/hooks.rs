//! Hooks around tool calls, and the events about them.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{CallStages, Executed, ToolErrorCode};

use crate::{
    context::{ToolContext, ToolUpdate},
    failure::ToolFailure,
    result::ToolResult,
};

/// Decision of a hook before a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run.
    Allow,
    /// The call fails with `not_permitted` and does not run.
    Refuse {
        /// The reason, which the model reads.
        reason: String,
    },
}

/// Outcome of a call, for hooks and events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// Duration of the call, with queueing.
    pub elapsed: Duration,
    /// Size of the result or of the error text, in bytes.
    pub bytes: usize,
    /// Error code of a failed call; [`ToolErrorCode::ExecutionFailed`] when the tool reported the failure.
    pub error: Option<ToolErrorCode>,
    /// Execution status of the tool.
    pub executed: Executed,
    /// Instance that ran the tool, if known.
    pub ran_on: Option<String>,
    /// Conversation with a sub-agent that the call ran. Untrusted text of any length.
    pub child_loop_id: Option<String>,
    /// Durations of the call's stages, as its handler reported them; `None` for a call without a handler.
    pub stages: Option<CallStages>,
}

/// A finished call, for hooks.
#[derive(Debug)]
pub struct FinishedCall<'a> {
    /// The call.
    pub context: &'a ToolContext,
    /// The arguments, as the model wrote them.
    pub arguments: &'a str,
    /// The outcome in figures.
    pub end: &'a CallEnd,
    /// The result, or the failure.
    pub result: &'a Result<ToolResult, ToolFailure>,
}

/// A call whose future was dropped before the outcome, for hooks.
#[derive(Debug)]
pub struct AbandonedCall<'a> {
    /// The call.
    pub context: &'a ToolContext,
    /// The arguments, as the model wrote them.
    pub arguments: &'a str,
    /// Time since the call started.
    pub elapsed: Duration,
    /// Execution status of the tool: `No` if the call was dropped before the hooks permitted it.
    pub executed: Executed,
}

/// Runs around tool calls. The context has the registered name of the tool. Each method runs before the
/// event of the same moment is published, and the call waits for it, so it must be bounded in time.
pub trait ToolHook: fmt::Debug + Send + Sync + 'static {
    /// Decides whether the call may start. After a refusal, neither the call nor the hooks after this
    /// one run.
    fn before_execution<'a>(
        &'a self,
        _context: &'a ToolContext,
        _arguments: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(Verdict::Allow))
    }

    /// Runs after the call ended, also after a refusal by this hook or by another one.
    fn after_execution<'a>(&'a self, _call: &'a FinishedCall<'a>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Runs in place of [`after_execution`](Self::after_execution) when the call's future was dropped
    /// before its end. Must not block.
    fn abandoned(&self, _call: &AbandonedCall<'_>) {}
}

/// An event about a tool call.
#[derive(Debug, Clone)]
pub enum ToolEvent {
    /// The call started.
    Started {
        /// The call.
        context: ToolContext,
        /// The arguments, as the model wrote them.
        arguments: Arc<str>,
    },
    /// The tool sent an update.
    Updated {
        /// The call.
        context: ToolContext,
        /// The update.
        update: ToolUpdate,
    },
    /// The call finished.
    Finished {
        /// The call.
        context: ToolContext,
        /// The outcome.
        end: CallEnd,
        /// The result or the error as text, truncated to [`MAX_TEXT_BYTES`](Self::MAX_TEXT_BYTES).
        text: String,
        /// Number of truncated bytes.
        text_left_out: usize,
    },
}

impl ToolEvent {
    /// Largest text of a result, in bytes.
    pub const MAX_TEXT_BYTES: usize = 16 * 1024;
}

/// Receives events. Must not block.
pub type EventSink = Arc<dyn Fn(ToolEvent) + Send + Sync>;
