//! One queue, its waiting messages and its consumers.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    Envelope, QueueKind, QueueSpec, RoutingKey, topology::DELIVERED_TOO_OFTEN,
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
    /// How often a message of a work queue is delivered before it is given up.
    deliveries: u32,
    dead_letters: DeadLetters,
    state: Mutex<State>,
    arrived: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Stored>,
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
            deliveries: spec.deliveries,
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
            return Err(format!("it exists as {:?}, not {:?}", self.kind, spec.kind));
        }
        if self.max_length != spec.max_length as usize {
            return Err(format!(
                "it exists with max_length {}, not {}",
                self.max_length, spec.max_length
            ));
        }
        if self.kind == QueueKind::Exclusive && self.state().consumers > 0 {
            return Err("another process consumes this exclusive queue".to_owned());
        }
        Ok(())
    }

    /// Takes a message. False when this is a work queue and it is full; other queues drop their
    /// oldest message instead.
    pub(super) fn offer(&self, key: RoutingKey, envelope: Envelope) -> bool {
        let mut state = self.state();
        if state.ready.len() >= self.max_length {
            if self.kind == QueueKind::Work {
                return false;
            }
            state.ready.pop_front();
        }
        state.arrivals += 1;
        let arrival = state.arrivals;
        state.ready.push_back(Stored { key, envelope, arrival, deliveries: 0 });
        drop(state);
        self.arrived.notify_one();
        true
    }

    /// Puts a delivered message back to its place, or gives it up when it came too often.
    fn put_back(&self, stored: Stored) {
        if self.kind == QueueKind::Work && stored.deliveries >= self.deliveries {
            self.give_up(stored, DELIVERED_TOO_OFTEN.into());
            return;
        }
        let mut state = self.state();
        let place = state.ready.partition_point(|waiting| waiting.arrival < stored.arrival);
        state.ready.insert(place, stored);
        drop(state);
        self.arrived.notify_one();
    }

    fn give_up(&self, stored: Stored, reason: Cow<'static, str>) {
        if let Some(dead_letters) = &self.dead_letters {
            let mut envelope = stored.envelope;
            envelope.dead_letter_reason = Some(reason.into());
            dead_letters.offer(stored.key, envelope);
        }
    }

    fn take(&self) -> Option<Stored> {
        let mut state = self.state();
        let mut stored = state.ready.pop_front()?;
        let more = !state.ready.is_empty();
        drop(state);
        if more {
            // One wake-up may stand for several arrivals; pass it on.
            self.arrived.notify_one();
        }
        stored.deliveries += 1;
        Some(stored)
    }

    pub(super) fn subscribe(self: &Arc<Self>, subscription: &Subscription) -> Lease {
        self.state().consumers += 1;
        Lease {
            queue: self.clone(),
            prefetch: Arc::new(Semaphore::new(usize::from(subscription.prefetch))),
            settling: subscription.settling,
            cancelled: false,
        }
    }

    /// Counts a consumer out; true when it was the last.
    pub(super) fn unsubscribe(&self) -> bool {
        let mut state = self.state();
        state.consumers -= 1;
        let last = state.consumers == 0;
        drop(state);
        // It may have swallowed a wake-up meant for any consumer.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One consumer's share of a queue.
#[derive(Debug)]
pub(super) struct Lease {
    queue: Arc<Queue>,
    prefetch: Arc<Semaphore>,
    settling: Settling,
    cancelled: bool,
}

impl Lease {
    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Ends it; false when it had ended already.
    pub(super) fn cancel(&mut self) -> bool {
        !std::mem::replace(&mut self.cancelled, true)
    }

    pub(super) async fn next(&mut self) -> Option<Delivery> {
        if self.cancelled {
            return None;
        }
        let permit = self.prefetch.clone().acquire_owned().await.ok()?;
        loop {
            // Made before looking, so that an arrival in between is not missed.
            let arrived = self.queue.arrived.notified();
            if self.queue.closed.load(Ordering::Acquire) {
                // One wake-up may stand for all consumers; pass it on.
                self.queue.arrived.notify_one();
                return None;
            }
            if let Some(stored) = self.queue.take() {
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
    /// A place in the consumer's prefetch, free again when the delivery is settled.
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
        self.queue.give_up(self.stored(envelope), reason);
        Box::pin(std::future::ready(Ok(())))
    }

    fn abandon(self: Box<Self>, envelope: Envelope) {
        self.queue.put_back(self.stored(envelope));
    }
}
