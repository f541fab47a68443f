//! Calls that run in this process, and the copies of their requests.

use std::{
    collections::{
        HashMap,
        hash_map::{Entry, RandomState},
    },
    hash::BuildHasher,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{RoutingKey, ToolCallId, ToolCancel, ToolInvokeRequest};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{cancellations::Cancellations, reply::Caller};

/// Maximum number of copies of a request that wait for the running call; further ones replace the oldest.
const MAX_ATTACHED: u64 = 2;

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
pub(super) struct RunningCalls {
    state: Mutex<State>,
    /// Set once a call ended without a confirmed reply.
    has_unreplied: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    by_id: HashMap<ToolCallId, RunningCall>,
    cancelled: Cancellations,
}

#[derive(Debug)]
struct RunningCall {
    since: Instant,
    reply_to: RoutingKey,
    fingerprint: CallFingerprint,
    cancellation: CancellationToken,
    is_replying: Arc<AtomicBool>,
    /// State for the copies of the request; `None` before the first one.
    copies: Option<watch::Sender<Copies>>,
}

/// State of a running call for the copies of its request.
#[derive(Debug, Clone, Copy, Default)]
struct Copies {
    /// Number of copies so far.
    count: u64,
    /// Number of copies with another reply address so far.
    at_other_addresses: u64,
    /// Set when the call ended; `true` if its reply was confirmed.
    confirmed: Option<bool>,
}

impl Copies {
    fn at_own_address(&mut self) -> &mut u64 {
        &mut self.count
    }

    fn at_other_addresses(&mut self) -> &mut u64 {
        &mut self.at_other_addresses
    }
}

/// Result of registering a request by its call id.
pub(super) enum CallEntry<'a> {
    /// The call may run.
    New(CallGuard<'a>),
    /// An identical call of this caller already runs here.
    Duplicate(DuplicateCall),
    /// A different call has this id.
    Conflict,
    /// An identical call of the agent runs here whose reply goes to another address: a process that
    /// continues a turn makes the calls of the process before again.
    OtherAddress(DuplicateCall),
}

/// Entry of a running call, removed when dropped.
pub(super) struct CallGuard<'a> {
    calls: &'a RunningCalls,
    id: ToolCallId,
    cancellation: CancellationToken,
    is_replying: Arc<AtomicBool>,
    confirmed: Option<bool>,
}

/// A copy of the request of a running call. The broker may have only this one left, if the connection of
/// the first was lost, so the newest copies must not be settled before the call ends.
pub(super) struct DuplicateCall {
    is_replying: bool,
    /// Counts the copies that it is one of.
    count: fn(&mut Copies) -> &mut u64,
    number: u64,
    copies: watch::Receiver<Copies>,
}

/// End of the wait of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuplicateEnd {
    /// The call ended, and its reply was confirmed.
    Replied,
    /// The call ended without a confirmed reply.
    NotReplied,
    /// Newer copies wait for the call. Their channels were open later, so this one is not needed.
    Replaced,
}

impl DuplicateCall {
    /// Returns whether the reply was being published already. A caller that reconnected may have
    /// missed it then.
    pub(super) fn is_replying(&self) -> bool {
        self.is_replying
    }

    /// Waits until the call ended and is no longer registered, or until newer copies wait for it.
    pub(super) async fn wait(mut self) -> DuplicateEnd {
        let (newest, count) = (self.number + MAX_ATTACHED, self.count);
        let ended = |copies: &Copies| {
            let mut copies = *copies;
            copies.confirmed.is_some() || *count(&mut copies) >= newest
        };
        match self.copies.wait_for(ended).await.as_deref() {
            Ok(Copies { confirmed: Some(true), .. }) => DuplicateEnd::Replied,
            Ok(Copies { confirmed: None, .. }) => DuplicateEnd::Replaced,
            // A closed channel means that the call was aborted.
            Ok(Copies { confirmed: Some(false), .. }) | Err(_) => DuplicateEnd::NotReplied,
        }
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

    /// Returns whether the reply of every call so far was confirmed.
    pub(super) fn all_replied(&self) -> bool {
        self.count() == 0 && !self.has_unreplied.load(Ordering::Acquire)
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
        let State { by_id, cancelled } = &mut *state;
        let vacant = match by_id.entry(id.clone()) {
            Entry::Occupied(running) => {
                return running.into_mut().attach(reply_to, fingerprint);
            }
            Entry::Vacant(vacant) => vacant,
        };
        let cancellation = CancellationToken::new();
        if cancelled.contains(id) {
            cancellation.cancel();
        }
        let is_replying = Arc::<AtomicBool>::default();
        vacant.insert(RunningCall {
            since: Instant::now(),
            reply_to: reply_to.clone(),
            fingerprint,
            cancellation: cancellation.clone(),
            is_replying: is_replying.clone(),
            copies: None,
        });
        let id = id.clone();
        CallEntry::New(CallGuard { calls: self, id, cancellation, is_replying, confirmed: None })
    }

    /// Cancels a call for `remaining`, the time until its deadline. Every handler receives every cancel
    /// message: the call may run in another handler, or its request, or a copy of it, may arrive later.
    pub(super) fn cancel(&self, cancel: &ToolCancel, remaining: Option<Duration>) {
        let mut state = self.lock();
        if let Some(call) = state.by_id.get(&cancel.tool_call_id) {
            info!(tool_call_id = %cancel.tool_call_id, "call cancelled by its caller");
            call.cancellation.cancel();
        } else {
            debug!(tool_call_id = %cancel.tool_call_id, "cancel kept for later requests of its call");
        }
        state.cancelled.insert(cancel.tool_call_id.clone(), remaining);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl RunningCall {
    /// Attaches another request with the same id.
    fn attach<'a>(&mut self, reply_to: &RoutingKey, fingerprint: CallFingerprint) -> CallEntry<'a> {
        if self.fingerprint != fingerprint {
            return CallEntry::Conflict;
        }
        let is_replying = self.is_replying.load(Ordering::Acquire);
        let sender = self.copies.get_or_insert_with(watch::Sender::default);
        let is_elsewhere = self.reply_to != *reply_to;
        // Counted apart: a copy of the first caller must not replace that of the process that continues.
        let count: fn(&mut Copies) -> &mut u64 =
            if is_elsewhere { Copies::at_other_addresses } else { Copies::at_own_address };
        let mut number = 0;
        sender.send_modify(|copies| {
            let count = count(copies);
            *count += 1;
            number = *count;
        });
        let copy = DuplicateCall { is_replying, count, number, copies: sender.subscribe() };
        if is_elsewhere { CallEntry::OtherAddress(copy) } else { CallEntry::Duplicate(copy) }
    }
}

impl CallGuard<'_> {
    /// Marks the reply as being published.
    pub(super) fn start_reply(&self) {
        self.is_replying.store(true, Ordering::Release);
    }

    /// Removes the entry and publishes to copies of the request whether the reply was confirmed.
    pub(super) fn finish(mut self, confirmed: bool) {
        self.confirmed = Some(confirmed);
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.confirmed != Some(true) {
            self.calls.has_unreplied.store(true, Ordering::Release);
        }
        let call = self.calls.lock().by_id.remove(&self.id);
        // Published after the removal, so that a copy that registers again does not find the call.
        // An aborted call has no confirmation.
        let copies = call.and_then(|call| call.copies);
        if let (Some(copies), Some(_)) = (copies, self.confirmed) {
            copies.send_modify(|copies| copies.confirmed = self.confirmed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn early_cancel_applies_to_every_copy() {
        let calls = RunningCalls::default();
        let id = ToolCallId::generate();
        let cancel = ToolCancel { tool_call_id: id.clone(), reason: String::new() };
        calls.cancel(&cancel, Some(Duration::from_secs(60)));
        let reply_to = RoutingKey::new("tool.result.agent.one").expect("a valid key");
        for _ in 0..2 {
            let CallEntry::New(guard) = calls.register(&id, &reply_to, CallFingerprint(1)) else {
                panic!("no call runs");
            };
            assert!(guard.cancellation().is_cancelled());
            guard.finish(true);
        }
    }

    #[tokio::test]
    async fn newest_copies_replace_older_ones() {
        let calls = RunningCalls::default();
        let id = ToolCallId::generate();
        let reply_to = RoutingKey::new("tool.result.agent.one").expect("a valid key");
        let register = || calls.register(&id, &reply_to, CallFingerprint(1));
        let CallEntry::New(guard) = register() else { panic!("no call runs") };
        let mut copies = Vec::new();
        for _ in 0..4 {
            let CallEntry::Duplicate(copy) = register() else { panic!("the call runs") };
            copies.push(copy.wait());
        }
        let newest = copies.split_off(2);
        for copy in copies {
            assert_eq!(copy.await, DuplicateEnd::Replaced);
        }
        guard.finish(true);
        for copy in newest {
            assert_eq!(copy.await, DuplicateEnd::Replied);
        }
    }

    #[tokio::test]
    async fn newest_copies_of_other_addresses_replace_older_ones() {
        let calls = RunningCalls::default();
        let id = ToolCallId::generate();
        let register = |instance: &str| {
            let key = format!("tool.result.agent.{instance}");
            let reply_to = RoutingKey::new(key).expect("a valid key");
            calls.register(&id, &reply_to, CallFingerprint(1))
        };
        let CallEntry::New(guard) = register("one") else { panic!("no call runs") };
        let elsewhere = |instance: &str| {
            let CallEntry::OtherAddress(copy) = register(instance) else { panic!("it runs") };
            copy.wait()
        };
        let oldest = elsewhere("two");
        let CallEntry::Duplicate(same) = register("one") else { panic!("it runs") };
        let newest = [elsewhere("two"), elsewhere("three")];
        assert_eq!(oldest.await, DuplicateEnd::Replaced);
        guard.finish(true);
        assert_eq!(same.wait().await, DuplicateEnd::Replied, "counted apart");
        for copy in newest {
            assert_eq!(copy.await, DuplicateEnd::Replied);
        }
    }
}
