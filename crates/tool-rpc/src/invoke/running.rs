//! Calls that run in this process, and cancel messages that arrived before their requests.

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

use super::reply::Caller;

/// Maximum number of cancel messages that are kept for requests still in a broker queue; the oldest are
/// dropped first.
const MAX_EARLY_CANCELS: usize = 1024;

/// Time for which such a cancel message is kept. A request that an operator resends later is meant to run.
const EARLY_CANCEL_TTL: Duration = Duration::from_secs(120);

/// Hash of a call's content, to tell different calls with the same id apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallFingerprint(u64);

impl CallFingerprint {
    pub(super) fn new(request: &ToolInvokeRequest, server: Option<&str>, caller: &Caller) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let (agent, tool) = (caller.agent.as_str(), request.tool_name.as_str());
        Self(STATE.hash_one((agent, server, tool, request.arguments.as_str())))
    }
}

#[derive(Debug, Default)]
pub(super) struct RunningCalls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_id: HashMap<ToolCallId, RunningCall>,
    early_cancels: VecDeque<(ToolCallId, Instant)>,
}

#[derive(Debug)]
struct RunningCall {
    since: Instant,
    reply_to: RoutingKey,
    fingerprint: CallFingerprint,
    cancellation: CancellationToken,
    is_replying: Arc<AtomicBool>,
    /// Publishes to duplicate deliveries, once there are any, whether the reply was confirmed.
    confirmed: Option<watch::Sender<Option<bool>>>,
}

/// Result of registering a request by its call id.
pub(super) enum CallEntry<'a> {
    /// The call may run.
    New(CallGuard<'a>),
    /// An identical call of this caller already runs here.
    Duplicate(DuplicateCall),
    /// A different call, or one of another caller, has this id.
    Conflict,
}

/// Entry of a running call, removed when dropped.
pub(super) struct CallGuard<'a> {
    calls: &'a RunningCalls,
    id: ToolCallId,
    cancellation: CancellationToken,
    is_replying: Arc<AtomicBool>,
    confirmed: Option<bool>,
}

/// A second delivery of a running call. The broker may have only this one left, if the connection of
/// the first was lost, so it must not be settled before the call ends.
pub(super) struct DuplicateCall {
    is_replying: bool,
    confirmed: watch::Receiver<Option<bool>>,
}

impl DuplicateCall {
    /// Returns whether the reply was being published already. A caller that reconnected may have
    /// missed it then.
    pub(super) fn is_replying(&self) -> bool {
        self.is_replying
    }

    /// Waits until the call ended and is no longer registered. Returns whether its reply was confirmed.
    pub(super) async fn wait(mut self) -> bool {
        let confirmed = self.confirmed.wait_for(Option::is_some).await;
        // A closed channel means that the call was aborted.
        confirmed.is_ok_and(|confirmed| *confirmed == Some(true))
    }
}

impl RunningCalls {
    pub(super) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Returns the age of the oldest call.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.lock().by_id.values().map(|call| call.since.elapsed()).max()
    }

    pub(super) fn contains(&self, id: &ToolCallId) -> bool {
        self.lock().by_id.contains_key(id)
    }

    pub(super) fn register(
        &self,
        id: &ToolCallId,
        reply_to: &RoutingKey,
        fingerprint: CallFingerprint,
    ) -> CallEntry<'_> {
        let mut state = self.lock();
        let State { by_id, early_cancels } = &mut *state;
        let vacant = match by_id.entry(id.clone()) {
            Entry::Occupied(running) => {
                return running.into_mut().attach(reply_to, fingerprint);
            }
            Entry::Vacant(vacant) => vacant,
        };
        let cancellation = CancellationToken::new();
        if let Some(at) = early_cancels.iter().position(|(cancelled, _)| cancelled == id)
            && let Some((_, since)) = early_cancels.remove(at)
            && since.elapsed() < EARLY_CANCEL_TTL
        {
            cancellation.cancel();
        }
        let is_replying = Arc::<AtomicBool>::default();
        vacant.insert(RunningCall {
            since: Instant::now(),
            reply_to: reply_to.clone(),
            fingerprint,
            cancellation: cancellation.clone(),
            is_replying: is_replying.clone(),
            confirmed: None,
        });
        let id = id.clone();
        CallEntry::New(CallGuard { calls: self, id, cancellation, is_replying, confirmed: None })
    }

    /// Cancels a call. Every handler receives every cancel message, so the call may run in another
    /// handler, or its request may not have arrived yet.
    pub(super) fn cancel(&self, cancel: &ToolCancel) {
        let mut state = self.lock();
        if let Some(call) = state.by_id.get(&cancel.tool_call_id) {
            info!(tool_call_id = %cancel.tool_call_id, "call cancelled by its caller");
            call.cancellation.cancel();
            return;
        }
        if state.early_cancels.len() >= MAX_EARLY_CANCELS {
            state.early_cancels.pop_front();
        }
        state.early_cancels.push_back((cancel.tool_call_id.clone(), Instant::now()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCall {
    /// Attaches another request with the same id.
    fn attach<'a>(&mut self, reply_to: &RoutingKey, fingerprint: CallFingerprint) -> CallEntry<'a> {
        if self.reply_to != *reply_to || self.fingerprint != fingerprint {
            return CallEntry::Conflict;
        }
        let is_replying = self.is_replying.load(Ordering::Acquire);
        let confirmed = self.confirmed.get_or_insert_with(|| watch::Sender::new(None)).subscribe();
        CallEntry::Duplicate(DuplicateCall { is_replying, confirmed })
    }
}

impl CallGuard<'_> {
    /// Marks the reply as being published.
    pub(super) fn start_reply(&self) {
        self.is_replying.store(true, Ordering::Release);
    }

    /// Removes the entry and publishes to duplicate deliveries whether the reply was confirmed.
    pub(super) fn finish(mut self, confirmed: bool) {
        self.confirmed = Some(confirmed);
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let call = self.calls.lock().by_id.remove(&self.id);
        // Published after the removal, so that a duplicate that registers again does not find the call.
        // An aborted call has no confirmation.
        let duplicates = call.and_then(|call| call.confirmed);
        if let (Some(duplicates), Some(_)) = (duplicates, self.confirmed) {
            duplicates.send_replace(self.confirmed);
        }
    }
}
