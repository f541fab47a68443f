//! The calls that run in this process, and the cancels that are ahead of theirs.

use std::{
    collections::{
        HashMap, VecDeque,
        hash_map::{Entry, RandomState},
    },
    hash::BuildHasher,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::{RoutingKey, ToolCallId, ToolCancel, ToolInvokeRequest};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::answer::Asker;

/// Cancels are remembered for calls that are still in a queue; this many, the oldest go first.
const MOST_EARLY_CANCELS: usize = 1024;

/// And for so long: a call that is sent again later, by an operator, is meant to run.
const EARLY_FOR: Duration = Duration::from_secs(120);

/// What a call is, for telling it from another under the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Same(u64);

impl Same {
    pub(super) fn call(request: &ToolInvokeRequest, server: Option<&str>, asker: &Asker) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let (agent, tool) = (asker.name.as_str(), request.tool_name.as_str());
        Self(STATE.hash_one((agent, server, tool, request.arguments.as_str())))
    }
}

#[derive(Debug, Default)]
pub(super) struct Running(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    by_id: HashMap<ToolCallId, Call>,
    cancelled_early: VecDeque<(ToolCallId, Instant)>,
}

#[derive(Debug)]
struct Call {
    since: Instant,
    reply_to: RoutingKey,
    same: Same,
    cancellation: CancellationToken,
    is_answering: Arc<AtomicBool>,
    /// Tells those who wait for it, once there are any, how it ended.
    attached: Option<watch::Sender<Option<bool>>>,
}

/// What a request finds when it comes in.
pub(super) enum Ticket<'a> {
    /// It may run.
    Entered(Entered<'a>),
    /// The same call runs here and answers the same asker.
    Attached(Attached),
    /// Another call, or one of another asker, has this id.
    Conflict,
}

/// A call's place among the running ones, until dropped.
pub(super) struct Entered<'a> {
    running: &'a Running,
    id: ToolCallId,
    cancellation: CancellationToken,
    is_answering: Arc<AtomicBool>,
    outcome: Option<bool>,
}

/// A second delivery of a call that runs here. It may be the only one that the broker still knows
/// of, when the first one's connection is gone, so it must not be settled before the call ends.
pub(super) struct Attached {
    is_answering: bool,
    answered: watch::Receiver<Option<bool>>,
}

impl Attached {
    /// Whether the answer was on its way already. Then whoever asked anew may have come too late to
    /// hear it.
    pub(super) fn is_answering(&self) -> bool {
        self.is_answering
    }

    /// Returns when the call ended, and is no longer here: whether its answer is confirmed.
    pub(super) async fn answered(mut self) -> bool {
        let ended = self.answered.wait_for(Option::is_some).await;
        // Without a word the call was aborted.
        ended.is_ok_and(|answered| *answered == Some(true))
    }
}

impl Running {
    pub(super) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// For how long the oldest call has been here.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.lock().by_id.values().map(|call| call.since.elapsed()).max()
    }

    pub(super) fn has(&self, id: &ToolCallId) -> bool {
        self.lock().by_id.contains_key(id)
    }

    pub(super) fn enter(&self, id: &ToolCallId, reply_to: &RoutingKey, same: Same) -> Ticket<'_> {
        let mut calls = self.lock();
        let Calls { by_id, cancelled_early } = &mut *calls;
        let place = match by_id.entry(id.clone()) {
            Entry::Occupied(running) => return running.into_mut().met(reply_to, same),
            Entry::Vacant(place) => place,
        };
        let cancellation = CancellationToken::new();
        if let Some(at) = cancelled_early.iter().position(|(cancelled, _)| cancelled == id)
            && let Some((_, since)) = cancelled_early.remove(at)
            && since.elapsed() < EARLY_FOR
        {
            cancellation.cancel();
        }
        let is_answering = Arc::<AtomicBool>::default();
        place.insert(Call {
            since: Instant::now(),
            reply_to: reply_to.clone(),
            same,
            cancellation: cancellation.clone(),
            is_answering: is_answering.clone(),
            attached: None,
        });
        let id = id.clone();
        Ticket::Entered(Entered { running: self, id, cancellation, is_answering, outcome: None })
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
        calls.cancelled_early.push_back((cancel.tool_call_id.clone(), Instant::now()));
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// What a request under its id finds.
    fn met<'a>(&mut self, reply_to: &RoutingKey, same: Same) -> Ticket<'a> {
        if self.reply_to != *reply_to || self.same != same {
            return Ticket::Conflict;
        }
        let is_answering = self.is_answering.load(Ordering::Acquire);
        let answered = self.attached.get_or_insert_with(|| watch::Sender::new(None)).subscribe();
        Ticket::Attached(Attached { is_answering, answered })
    }
}

impl Entered<'_> {
    /// Its answer goes out now.
    pub(super) fn answering(&self) {
        self.is_answering.store(true, Ordering::Release);
    }

    /// The call ended: whether its answer is confirmed.
    pub(super) fn ended(mut self, answered: bool) {
        self.outcome = Some(answered);
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let call = self.running.lock().by_id.remove(&self.id);
        // Told after it is gone, so that who looks again does not find it. Without an outcome it was
        // aborted.
        if let (Some(attached), Some(_)) = (call.and_then(|call| call.attached), self.outcome) {
            attached.send_replace(self.outcome);
        }
    }
}
