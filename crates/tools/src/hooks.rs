//! What others may do around a call: refuse it, watch it, and hear of it.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{Executed, ToolErrorCode};

use crate::context::{ToolContext, ToolUpdate};

/// What a hook that runs before a call says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Allow,
    /// Don't run it; the model reads the reason.
    Refuse {
        /// For the model.
        reason: String,
    },
}

/// How a call ended, for hooks and events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnd {
    /// From start to end.
    pub elapsed: Duration,
    /// Size of the result, in bytes.
    pub bytes: usize,
    /// Why it failed; [`ToolErrorCode::ExecutionFailed`] when the tool itself says so.
    pub error: Option<ToolErrorCode>,
    /// Whether the tool ran.
    pub executed: Executed,
    /// Which process ran it, where that is known.
    pub ran_on: Option<String>,
}

/// Runs around calls. Each method runs strictly before the event of the same moment is told, and
/// the call waits for it, so it should be quick or bounded.
pub trait ToolHook: Send + Sync + 'static {
    /// Before the call starts. A refusal means that no start and no end are told.
    fn before_execution<'a>(
        &'a self,
        _context: &'a ToolContext,
        _arguments: &'a str,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(Verdict::Allow))
    }

    /// After the call ended, however it ended.
    fn after_execution<'a>(
        &'a self,
        _context: &'a ToolContext,
        _end: &'a CallEnd,
    ) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Before a sign of life is told; false keeps it back.
    fn before_update(&self, _context: &ToolContext, _update: &ToolUpdate) -> bool {
        true
    }

    /// After a sign of life was told.
    fn after_update(&self, _context: &ToolContext, _update: &ToolUpdate) {}
}

/// What happens to a call, told to whoever watches.
#[derive(Debug, Clone)]
pub enum ToolEvent {
    /// It goes out.
    Started {
        /// The call.
        context: ToolContext,
        /// The arguments, as the model wrote them.
        arguments: Arc<str>,
    },
    /// It lives.
    Updated {
        /// The call.
        context: ToolContext,
        /// What it says.
        update: ToolUpdate,
    },
    /// It came back.
    Finished {
        /// The call.
        context: ToolContext,
        /// How.
        end: CallEnd,
    },
}

/// Takes events. Must not block.
pub type EventSink = Arc<dyn Fn(ToolEvent) + Send + Sync>;
