//! The loop that runs a handler on each delivery.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use metrics::{Counter, counter};
use rockbot_contracts::{QueueName, labels::family_of, trace};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, error, info, info_span, warn};

use crate::{
    delivery::{Delivery, Settlement},
    port::{Bus, ConsumeError, Consumer, Subscription},
};

/// Works on deliveries. Says what becomes of each, and never touches the bus to settle it.
pub trait Handler: Send + Sync + 'static {
    /// Works on one delivery. A panic is contained and counts as [`Settlement::Retry`].
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement>;
}

/// Counts of what a worker did since it started.
#[derive(Debug)]
pub struct WorkerStats {
    acked: Tally,
    retried: Tally,
    dead_lettered: Tally,
    unsettled: Tally,
    panicked: AtomicU64,
}

/// A count of a worker, and the series of its queue in `rockbot_bus_deliveries_total`.
#[derive(Debug)]
struct Tally {
    outcome: &'static str,
    count: AtomicU64,
    series: Counter,
}

impl Tally {
    fn of(family: &'static str, outcome: &'static str) -> Self {
        let labels = [("queue", family), ("outcome", outcome)];
        let series = counter!("rockbot_bus_deliveries_total", &labels);
        Self { outcome, count: AtomicU64::default(), series }
    }

    fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.series.increment(1);
    }

    fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl WorkerStats {
    fn of(family: &'static str) -> Self {
        Self {
            acked: Tally::of(family, "acked"),
            retried: Tally::of(family, "retried"),
            dead_lettered: Tally::of(family, "dead_lettered"),
            unsettled: Tally::of(family, "unsettled"),
            panicked: AtomicU64::default(),
        }
    }

    /// Deliveries done.
    pub fn acked(&self) -> u64 {
        self.acked.get()
    }

    /// Deliveries handed back.
    pub fn retried(&self) -> u64 {
        self.retried.get()
    }

    /// Deliveries given up.
    pub fn dead_lettered(&self) -> u64 {
        self.dead_lettered.get()
    }

    /// Handlers that panicked.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Settlements that did not reach the bus.
    pub fn unsettled(&self) -> u64 {
        self.unsettled.get()
    }
}

/// A running consumer of one queue: as many tasks as the subscription's prefetch allows.
///
/// Dropping it aborts what is under way; the bus delivers that again.
#[derive(Debug)]
pub struct Worker {
    stop: CancellationToken,
    pump: JoinHandle<()>,
    stats: Arc<WorkerStats>,
    queue: String,
}

impl Worker {
    /// Starts to consume. The prefetch bounds the concurrency: the bus hands out no more
    /// deliveries than that before some are settled.
    ///
    /// # Errors
    /// When the queue can't be consumed.
    pub async fn start(
        bus: &dyn Bus,
        subscription: Subscription,
        handler: Arc<dyn Handler>,
    ) -> Result<Self, ConsumeError> {
        let queue = subscription.queue.name.clone();
        let consumer = bus.consume(subscription).await?;
        Ok(Self::of(consumer, &queue, handler))
    }

    /// The same on a consumer of `queue` that is there already.
    #[must_use]
    pub fn of(consumer: Consumer, queue: &QueueName, handler: Arc<dyn Handler>) -> Self {
        let stop = CancellationToken::new();
        let family = family_of(queue.as_str());
        let stats = Arc::new(WorkerStats::of(family));
        let work = Work { handler, stats: stats.clone(), family };
        let pump = tokio::spawn(pump(consumer, work, stop.clone()));
        Self { stop, pump, stats, queue: queue.to_string() }
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }

    /// Stops consuming, finishes and settles what is under way, and returns whether all of it
    /// ended within `grace`. What did not is aborted, and the bus delivers it again.
    pub async fn drain(mut self, grace: Duration) -> bool {
        self.stop.cancel();
        let drained = timeout(grace, &mut self.pump).await.is_ok();
        if drained {
            info!(queue = self.queue, "drained");
        } else {
            warn!(queue = self.queue, ?grace, "stopped before all deliveries were done");
        }
        drained
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// Owns the tasks: they end with it.
async fn pump(mut consumer: Consumer, work: Work, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut stopped = pin!(stop.cancelled());
    loop {
        let delivery = tokio::select! {
            biased;
            () = &mut stopped => break,
            delivery = consumer.next() => delivery,
        };
        let Some(delivery) = delivery else { break };
        // What has ended since the last delivery; each has kept a few hundred bytes until now.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work.clone().on(delivery));
    }
    // Deliveries that are already here are worked on: handing them back would mark them as
    // possibly started.
    consumer.cancel().await;
    while let Some(delivery) = consumer.next().await {
        tasks.spawn(work.clone().on(delivery));
    }
    while tasks.join_next().await.is_some() {}
}

/// What is done with each delivery.
#[derive(Clone)]
struct Work {
    handler: Arc<dyn Handler>,
    stats: Arc<WorkerStats>,
    /// Of which queue, in few words.
    family: &'static str,
}

impl Work {
    /// Has a delivery handled, and settles it. All of it is a span of its sender's trace.
    async fn on(self, delivery: Delivery) {
        let span = self.span(&delivery);
        self.process(delivery).instrument(span).await;
    }

    async fn process(self, delivery: Delivery) {
        if delivery.is_redelivered() {
            counter!("rockbot_bus_redeliveries_total", "queue" => self.family).increment(1);
        }
        let stats = self.stats;
        let handled = AssertUnwindSafe(self.handler.handle(&delivery)).catch_unwind().await;
        let settlement = handled.unwrap_or_else(|_| {
            stats.panicked.fetch_add(1, Ordering::Relaxed);
            let envelope = delivery.envelope();
            error!(message_id = %envelope.message_id, r#type = envelope.message_type(),
                correlation_id = envelope.correlation_id.as_deref(),
                "the handler panicked; retrying");
            Settlement::Retry
        });
        let tally = match &settlement {
            Settlement::Ack => &stats.acked,
            Settlement::Retry => &stats.retried,
            Settlement::DeadLetter { reason } => {
                let correlation_id = delivery.envelope().correlation_id.as_deref();
                // A reason of ours is fixed text; another one quotes the message.
                match reason {
                    Cow::Borrowed(reason) => warn!(correlation_id, reason, "dead-lettering"),
                    Cow::Owned(reason) => {
                        warn!(correlation_id, "dead-lettering; the reason is with the letter");
                        debug!(correlation_id, reason, "dead-lettering");
                    }
                }
                &stats.dead_lettered
            }
        };
        // That a message is done needs no span of its own: the one around this ends with it.
        let settling = match settlement {
            Settlement::Ack => Span::none(),
            Settlement::Retry | Settlement::DeadLetter { .. } => info_span!(
                target: trace::TARGET,
                "settle",
                otel.name = format!("settle {}", self.family),
                otel.kind = "client",
                messaging.operation.name = tally.outcome,
                messaging.operation.type = "settle",
                messaging.destination.name = self.family,
            ),
        };
        match delivery.settle(settlement).instrument(settling).await {
            Ok(()) => tally.add(),
            Err(error) => {
                debug!(%error, "settlement lost");
                stats.unsettled.add();
            }
        }
    }

    fn span(&self, delivery: &Delivery) -> Span {
        let envelope = delivery.envelope();
        let span = info_span!(
            target: trace::TARGET,
            "process",
            otel.name = format!("process {}", self.family),
            otel.kind = "consumer",
            messaging.operation.name = "process",
            messaging.operation.type = "process",
            messaging.destination.name = self.family,
            messaging.message.id = envelope.message_id.as_str(),
            messaging.message.conversation_id = envelope.correlation_id.as_deref(),
        );
        trace::continue_from(&span, &envelope.trace);
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_that_is_worked_on_keeps_little() {
        fn size<A, B, F: Future>(_: impl FnOnce(A, B) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Work::on);
        assert!(size <= 448, "{size} bytes");
    }
}
