//! The calls that run in this process, and the cancels that are ahead of theirs.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rockbot_contracts::{RoutingKey, ToolCallId, ToolCancel};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Cancels are remembered for calls that are still in a queue; this many, the oldest go first.
const MOST_EARLY_CANCELS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Running(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    by_id: HashMap<ToolCallId, Call>,
    cancelled_early: VecDeque<ToolCallId>,
}

#[derive(Debug)]
struct Call {
    reply_to: RoutingKey,
    cancellation: CancellationToken,
}

/// What a request finds when it comes in.
pub(super) enum Ticket<'a> {
    /// It may run.
    Entered(Entered<'a>),
    /// The same call runs here and answers the same asker.
    Attached,
    /// Another asker's call has this id.
    Conflict,
}

/// A call's place among the running ones, until dropped.
pub(super) struct Entered<'a> {
    running: &'a Running,
    id: ToolCallId,
    cancellation: CancellationToken,
}

impl Running {
    pub(super) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    pub(super) fn enter(&self, id: &ToolCallId, reply_to: &RoutingKey) -> Ticket<'_> {
        let mut calls = self.lock();
        if let Some(running) = calls.by_id.get(id) {
            return if running.reply_to == *reply_to { Ticket::Attached } else { Ticket::Conflict };
        }
        let cancellation = CancellationToken::new();
        if let Some(at) = calls.cancelled_early.iter().position(|cancelled| cancelled == id) {
            calls.cancelled_early.remove(at);
            cancellation.cancel();
        }
        let call = Call { reply_to: reply_to.clone(), cancellation: cancellation.clone() };
        calls.by_id.insert(id.clone(), call);
        Ticket::Entered(Entered { running: self, id: id.clone(), cancellation })
    }

    /// Cancels a call that runs here. Every worker hears every cancel, so one for a call that is
    /// not here may be somebody else's, or ahead of its request.
    pub(super) fn cancel(&self, cancel: &ToolCancel) {
        let mut calls = self.lock();
        if let Some(call) = calls.by_id.get(&cancel.tool_call_id) {
            info!(tool_call_id = %cancel.tool_call_id, "cancelled by its asker");
            call.cancellation.cancel();
            return;
        }
        if calls.cancelled_early.len() >= MOST_EARLY_CANCELS {
            calls.cancelled_early.pop_front();
        }
        calls.cancelled_early.push_back(cancel.tool_call_id.clone());
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entered<'_> {
    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.running.lock().by_id.remove(&self.id);
    }
}
