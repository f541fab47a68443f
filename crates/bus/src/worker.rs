//! A consumer loop that runs a handler on each delivery.

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
    subscribe::{SUBSCRIBE_TIMEOUT, subscribe},
};

/// Processes deliveries. The worker settles each delivery as its handler returns.
pub trait Handler: Send + Sync + 'static {
    /// Processes one delivery. A panic is caught and counts as [`Settlement::Retry`].
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement>;
}

/// Counters of a worker since its start.
#[derive(Debug)]
pub struct WorkerStats {
    acked: OutcomeCounter,
    retried: OutcomeCounter,
    dead_lettered: OutcomeCounter,
    unsettled: OutcomeCounter,
    panicked: AtomicU64,
}

/// A counter of a worker and its series in `rockbot_bus_deliveries_total`.
#[derive(Debug)]
struct OutcomeCounter {
    outcome: &'static str,
    count: AtomicU64,
    series: Counter,
}

impl OutcomeCounter {
    fn new(family: &'static str, outcome: &'static str) -> Self {
        let labels = [("queue", family), ("outcome", outcome)];
        let series = counter!("rockbot_bus_deliveries_total", &labels);
        Self { outcome, count: AtomicU64::default(), series }
    }

    fn increment(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.series.increment(1);
    }

    fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl WorkerStats {
    fn new(family: &'static str) -> Self {
        Self {
            acked: OutcomeCounter::new(family, "acked"),
            retried: OutcomeCounter::new(family, "retried"),
            dead_lettered: OutcomeCounter::new(family, "dead_lettered"),
            unsettled: OutcomeCounter::new(family, "unsettled"),
            panicked: AtomicU64::default(),
        }
    }

    /// Returns the number of acknowledged deliveries.
    pub fn acked(&self) -> u64 {
        self.acked.get()
    }

    /// Returns the number of deliveries returned for a retry.
    pub fn retried(&self) -> u64 {
        self.retried.get()
    }

    /// Returns the number of dead-lettered deliveries.
    pub fn dead_lettered(&self) -> u64 {
        self.dead_lettered.get()
    }

    /// Returns the number of panics in the handler.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Returns the number of settlements that did not reach the bus, including those of deliveries that
    /// were not processed because their subscription was gone.
    pub fn unsettled(&self) -> u64 {
        self.unsettled.get()
    }
}

/// A running consumer of one queue, with at most as many tasks as the prefetch of the subscription.
///
/// Dropping it aborts its tasks; the bus redelivers their messages.
#[derive(Debug)]
pub struct Worker {
    stop: CancellationToken,
    /// Cancelled when the task ends, also by a panic.
    ended: CancellationToken,
    consume_loop: JoinHandle<()>,
    stats: Arc<WorkerStats>,
    queue: String,
}

impl Worker {
    /// Starts to consume. The prefetch limits concurrency: the bus delivers no more until some are
    /// settled. Waits for a lost connection for up to [`SUBSCRIBE_TIMEOUT`].
    ///
    /// # Errors
    /// When the queue can't be consumed.
    pub async fn start(
        bus: &dyn Bus,
        subscription: Subscription,
        handler: Arc<dyn Handler>,
    ) -> Result<Self, ConsumeError> {
        let queue = subscription.queue.name.clone();
        let consumer = subscribe(bus, subscription, SUBSCRIBE_TIMEOUT).await?;
        Ok(Self::from_consumer(consumer, &queue, handler))
    }

    /// Starts on an existing consumer of `queue`.
    #[must_use]
    pub fn from_consumer(consumer: Consumer, queue: &QueueName, handler: Arc<dyn Handler>) -> Self {
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let end = ended.clone().drop_guard();
        let family = family_of(queue.as_str());
        let stats = Arc::new(WorkerStats::new(family));
        let processor = Processor { handler, stats: stats.clone(), family };
        let consuming = consume(consumer, processor, stop.clone());
        let consume_loop = tokio::spawn(async move {
            let _end = end;
            consuming.await;
        });
        Self { stop, ended, consume_loop, stats, queue: queue.to_string() }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }

    /// Waits until the queue is no longer consumed although nothing stopped the worker: its task panicked,
    /// or its consumer ended. A lost connection does not end it.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Stops consuming, completes and settles the current deliveries, and returns whether all of them
    /// completed within `grace`. The others are aborted, and the bus redelivers them.
    pub async fn drain(mut self, grace: Duration) -> bool {
        self.stop.cancel();
        let drained = matches!(timeout(grace, &mut self.consume_loop).await, Ok(Ok(())));
        if drained {
            info!(queue = self.queue, "consumer drained");
        } else {
            warn!(queue = self.queue, ?grace, "consumer stopped with deliveries in process");
        }
        drained
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.consume_loop.abort();
    }
}

/// Consumes until stopped. Owns the tasks, so that dropping it aborts them.
async fn consume(mut consumer: Consumer, processor: Processor, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut stopped = pin!(stop.cancelled());
    loop {
        let delivery = tokio::select! {
            biased;
            () = &mut stopped => break,
            delivery = consumer.next() => delivery,
        };
        let Some(delivery) = delivery else { break };
        // Frees completed tasks, a few hundred bytes each.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(processor.clone().run(delivery));
    }
    // Deliveries already received are processed: returning them would mark them as possibly started.
    consumer.cancel().await;
    while let Some(delivery) = consumer.next().await {
        tasks.spawn(processor.clone().run(delivery));
    }
    while tasks.join_next().await.is_some() {}
}

/// Processes and settles deliveries.
#[derive(Clone)]
struct Processor {
    handler: Arc<dyn Handler>,
    stats: Arc<WorkerStats>,
    /// Family of the queue, as a label.
    family: &'static str,
}

impl Processor {
    /// Processes and settles a delivery, in a span of its sender's trace.
    async fn run(self, delivery: Delivery) {
        let span = self.span(&delivery);
        self.process(delivery).instrument(span).await;
    }

    async fn process(self, delivery: Delivery) {
        if delivery.is_redelivered() {
            counter!("rockbot_bus_redeliveries_total", "queue" => self.family).increment(1);
        }
        let stats = self.stats;
        if !delivery.is_open() {
            // The bus redelivers it, possibly to another process.
            debug!("delivery lost its subscription before it was processed");
            stats.unsettled.increment();
            return;
        }
        let handled = AssertUnwindSafe(self.handler.handle(&delivery)).catch_unwind().await;
        let settlement = handled.unwrap_or_else(|_| {
            stats.panicked.fetch_add(1, Ordering::Relaxed);
            let envelope = delivery.envelope();
            error!(message_id = %envelope.message_id, r#type = envelope.message_type(),
                correlation_id = envelope.correlation_id.as_deref(),
                "handler panicked; retrying");
            Settlement::Retry
        });
        let counter = match &settlement {
            Settlement::Ack => &stats.acked,
            Settlement::Retry => &stats.retried,
            Settlement::DeadLetter { reason } => {
                let correlation_id = delivery.envelope().correlation_id.as_deref();
                // A borrowed reason is constant text; an owned one may quote the message.
                match reason {
                    Cow::Borrowed(reason) => warn!(correlation_id, reason, "message dead-lettered"),
                    Cow::Owned(reason) => {
                        warn!(
                            correlation_id,
                            "message dead-lettered; the dead letter holds the reason"
                        );
                        debug!(correlation_id, reason, "message dead-lettered");
                    }
                }
                &stats.dead_lettered
            }
        };
        // An ack needs no span of its own: the surrounding span ends with it.
        let settling = match settlement {
            Settlement::Ack => Span::none(),
            Settlement::Retry | Settlement::DeadLetter { .. } => info_span!(
                target: trace::TARGET,
                "settle",
                otel.name = format!("settle {}", self.family),
                otel.kind = "client",
                messaging.operation.name = counter.outcome,
                messaging.operation.type = "settle",
                messaging.destination.name = self.family,
            ),
        };
        match delivery.settle(settlement).instrument(settling).await {
            Ok(()) => counter.increment(),
            Err(error) => {
                debug!(%error, "settlement failed");
                stats.unsettled.increment();
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
    use std::future::{pending, ready};

    use super::*;
    use crate::port::DeliverySource;

    /// A consumer without deliveries, which ends or panics.
    enum Broken {
        Ends,
        Panics,
        Waits,
    }

    impl DeliverySource for Broken {
        fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
            match self {
                Self::Ends => Box::pin(ready(None)),
                Self::Panics => Box::pin(async { panic!("on purpose") }),
                Self::Waits => Box::pin(pending()),
            }
        }

        fn cancel(&mut self) -> BoxFuture<'_, ()> {
            *self = Self::Ends;
            Box::pin(ready(()))
        }
    }

    struct Never;

    impl Handler for Never {
        fn handle<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Settlement> {
            Box::pin(ready(Settlement::Ack))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_the_consumer_is_reported() {
        let queue = QueueName::new("queue").expect("a name");
        let worker = |source| Worker::from_consumer(Consumer::new(source), &queue, Arc::new(Never));
        worker(Broken::Ends).ended().await;
        let waiting = worker(Broken::Waits);
        assert!(timeout(Duration::from_secs(3600), waiting.ended()).await.is_err());
        assert!(waiting.drain(Duration::from_secs(1)).await);
        // A panic of the consumer is caught, and does not end the worker.
        let panicking = worker(Broken::Panics);
        assert!(timeout(Duration::from_secs(2), panicking.ended()).await.is_err());
    }

    #[test]
    fn delivery_in_process_stays_small() {
        fn size<A, B, F: Future>(_: impl FnOnce(A, B) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Processor::run);
        assert!(size <= 448, "{size} bytes");
    }
}
