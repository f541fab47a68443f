//! A queue with its messages and consumers.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    Envelope, QueueKind, QueueSpec, RoutingKey,
    topology::{DELIVERED_TOO_OFTEN, MAX_DELIVERIES},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::DeadLetters;
use crate::{
    delivery::{Delivery, SettleError, Settler},
    port::{Settling, Subscription},
    report::QueueDepth,
};

/// A bounded queue with competing consumers.
#[derive(Debug)]
pub(super) struct Queue {
    kind: QueueKind,
    max_length: usize,
    /// Maximum size of the bodies of all ready messages.
    max_bytes: u64,
    dead_letters: DeadLetters,
    state: Mutex<State>,
    arrived: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Stored>,
    /// Size of the bodies of all ready messages.
    bytes: u64,
    arrivals: u64,
    consumers: u32,
}

#[derive(Debug)]
struct Stored {
    key: RoutingKey,
    envelope: Envelope,
    arrival: u64,
    deliveries: u32,
}

impl Queue {
    pub(super) fn new(spec: &QueueSpec, dead_letters: DeadLetters) -> Self {
        Self {
            kind: spec.kind,
            max_length: spec.max_length as usize,
            max_bytes: spec.max_bytes.unwrap_or(u64::MAX),
            dead_letters,
            state: Mutex::default(),
            arrived: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn kind(&self) -> QueueKind {
        self.kind
    }

    pub(super) fn check_same(&self, spec: &QueueSpec) -> Result<(), String> {
        if self.kind != spec.kind {
            return Err(format!(
                "the queue exists with kind {:?}, not {:?}; use another namespace",
                self.kind, spec.kind
            ));
        }
        if self.max_length != spec.max_length as usize {
            return Err(format!(
                "the queue exists with max_length {}, not {}; use another namespace",
                self.max_length, spec.max_length
            ));
        }
        if self.kind == QueueKind::Exclusive && self.state().consumers > 0 {
            return Err("another process consumes this exclusive queue".to_owned());
        }
        Ok(())
    }

    /// Adds a message. Returns false when this is a full work queue; other queues drop their oldest
    /// messages when full.
    pub(super) fn push(&self, key: RoutingKey, envelope: Envelope) -> bool {
        let mut state = self.state();
        let bytes = size_of_body(&envelope);
        while !state.ready.is_empty() && self.is_full(&state, bytes) {
            if self.kind == QueueKind::Work {
                return false;
            }
            state.take_first();
        }
        state.arrivals += 1;
        let arrival = state.arrivals;
        let at = state.ready.len();
        state.insert(at, Stored { key, envelope, arrival, deliveries: 0 });
        drop(state);
        self.arrived.notify_one();
        true
    }

    /// Requeues a delivered message at its original position, or dead-letters it after the last
    /// delivery.
    fn requeue(&self, stored: Stored) {
        if self.kind == QueueKind::Retained && stored.deliveries >= MAX_DELIVERIES {
            return;
        }
        if self.kind == QueueKind::Work && stored.deliveries >= MAX_DELIVERIES {
            self.dead_letter(stored, DELIVERED_TOO_OFTEN.into());
            return;
        }
        let mut state = self.state();
        let position = state.ready.partition_point(|ready| ready.arrival < stored.arrival);
        state.insert(position, stored);
        drop(state);
        self.arrived.notify_one();
    }

    fn dead_letter(&self, stored: Stored, reason: Cow<'static, str>) {
        if let Some(dead_letters) = &self.dead_letters {
            let mut envelope = stored.envelope;
            envelope.dead_letter_reason = Some(reason.into());
            dead_letters.push(stored.key, envelope);
        }
    }

    fn pop(&self) -> Option<Stored> {
        let mut state = self.state();
        let mut stored = state.take_first()?;
        let more = !state.ready.is_empty();
        drop(state);
        if more {
            // A single notification may stand for several arrivals; wake another consumer.
            self.arrived.notify_one();
        }
        stored.deliveries += 1;
        Some(stored)
    }

    pub(super) fn subscribe(self: &Arc<Self>, subscription: &Subscription) -> QueueConsumer {
        self.state().consumers += 1;
        QueueConsumer {
            queue: self.clone(),
            prefetch: Arc::new(Semaphore::new(usize::from(subscription.prefetch))),
            settling: subscription.settling,
            cancelled: false,
        }
    }

    /// Removes a consumer and returns whether it was the last.
    pub(super) fn unsubscribe(&self) -> bool {
        let mut state = self.state();
        state.consumers -= 1;
        let last = state.consumers == 0;
        drop(state);
        // The consumer may have received a notification without acting on it.
        self.arrived.notify_one();
        last
    }

    pub(super) fn depth(&self) -> QueueDepth {
        let state = self.state();
        let ready = u32::try_from(state.ready.len()).unwrap_or(u32::MAX);
        QueueDepth { ready, consumers: state.consumers }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// Returns whether a message of `bytes` exceeds a limit.
    fn is_full(&self, state: &State, bytes: u64) -> bool {
        let State { ready, bytes: ready_bytes, .. } = state;
        ready.len() >= self.max_length || ready_bytes.saturating_add(bytes) > self.max_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn insert(&mut self, at: usize, stored: Stored) {
        self.bytes = self.bytes.saturating_add(size_of_body(&stored.envelope));
        self.ready.insert(at, stored);
    }

    fn take_first(&mut self) -> Option<Stored> {
        let stored = self.ready.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size_of_body(&stored.envelope));
        Some(stored)
    }
}

fn size_of_body(envelope: &Envelope) -> u64 {
    envelope.body.len().try_into().unwrap_or(u64::MAX)
}

/// A consumer of a queue.
#[derive(Debug)]
pub(super) struct QueueConsumer {
    queue: Arc<Queue>,
    prefetch: Arc<Semaphore>,
    settling: Settling,
    cancelled: bool,
}

impl QueueConsumer {
    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Cancels the consumer. Returns false when it was already cancelled.
    pub(super) fn cancel(&mut self) -> bool {
        !std::mem::replace(&mut self.cancelled, true)
    }

    pub(super) async fn next(&mut self) -> Option<Delivery> {
        if self.cancelled {
            return None;
        }
        let permit = self.prefetch.clone().acquire_owned().await.ok()?;
        loop {
            // Created before the queue is checked, so that an arrival in between is not missed.
            let arrived = self.queue.arrived.notified();
            if self.queue.closed.load(Ordering::Acquire) {
                // A single notification may stand for all consumers; wake another one.
                self.queue.arrived.notify_one();
                return None;
            }
            if let Some(stored) = self.queue.pop() {
                let Stored { key, envelope, arrival, deliveries } = stored;
                if self.settling == Settling::OnReceipt {
                    return Some(Delivery::received(envelope, key, deliveries));
                }
                let settler = MemorySettler {
                    queue: self.queue.clone(),
                    key: key.clone(),
                    arrival,
                    deliveries,
                    _permit: permit,
                };
                return Some(Delivery::new(envelope, key, deliveries, settler));
            }
            arrived.await;
        }
    }
}

struct MemorySettler {
    queue: Arc<Queue>,
    key: RoutingKey,
    arrival: u64,
    deliveries: u32,
    /// Permit of the consumer's prefetch, released when the delivery is settled.
    _permit: OwnedSemaphorePermit,
}

impl MemorySettler {
    fn stored(&self, envelope: Envelope) -> Stored {
        Stored {
            key: self.key.clone(),
            envelope,
            arrival: self.arrival,
            deliveries: self.deliveries,
        }
    }
}

impl Settler for MemorySettler {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        drop(self);
        Box::pin(std::future::ready(Ok(())))
    }

    fn retry(self: Box<Self>, envelope: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        self.abandon(envelope);
        Box::pin(std::future::ready(Ok(())))
    }

    fn dead_letter(
        self: Box<Self>,
        envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        self.queue.dead_letter(self.stored(envelope), reason);
        Box::pin(std::future::ready(Ok(())))
    }

    fn abandon(self: Box<Self>, envelope: Envelope) {
        self.queue.requeue(self.stored(envelope));
    }
}
