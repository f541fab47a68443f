//! The worker loop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Delivery, Handler, Settlement, Subscription, Worker};
use tokio::sync::{Notify, Semaphore};

use crate::fixture::{
    BusFixture, assert_never, key, next_delivery, text_of, wait_until, within_timeout, work_queue,
};

/// A handler that blocks until the test permits it to return, and counts concurrent calls.
struct BlockingHandler {
    running: AtomicU32,
    max_running: AtomicU32,
    entered: Notify,
    exit: Semaphore,
}

impl BlockingHandler {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            running: AtomicU32::new(0),
            max_running: AtomicU32::new(0),
            entered: Notify::new(),
            exit: Semaphore::new(0),
        })
    }
}

impl Handler for BlockingHandler {
    fn handle<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.max_running.fetch_max(running, Ordering::SeqCst);
            self.entered.notify_one();
            let exit = self.exit.acquire().await.expect("the semaphore stays open");
            exit.forget();
            self.running.fetch_sub(1, Ordering::SeqCst);
            Settlement::Ack
        })
    }
}

async fn start(fixture: &BusFixture, prefetch: u16, handler: Arc<dyn Handler>) -> Worker {
    let subscription = Subscription::new(work_queue("jobs"), prefetch);
    Worker::start(fixture.remote.as_ref(), subscription, handler).await.expect("started")
}

/// Concurrency reaches the prefetch and does not exceed it.
pub async fn worker_concurrency_equals_prefetch(fixture: BusFixture) {
    let handler = BlockingHandler::new();
    let worker = start(&fixture, 3, handler.clone()).await;
    fixture.publish_all(&key("jobs"), (0..9).map(|number| number.to_string())).await;
    wait_until("three calls run", || handler.running.load(Ordering::SeqCst) == 3).await;
    handler.exit.add_permits(9);
    wait_until("all are acked", || worker.stats().acked() == 9).await;
    assert_eq!(handler.max_running.load(Ordering::SeqCst), 3);
    assert!(worker.drain(Duration::from_secs(5)).await);
}

/// A handler that panics on the first delivery and acks the second.
struct PanicsOnce;

impl Handler for PanicsOnce {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async {
            assert!(delivery.is_redelivered(), "a panic on the first attempt, on purpose");
            Settlement::Ack
        })
    }
}

/// A panic neither ends the process nor loses the message.
pub async fn panicking_handler_is_retried(fixture: BusFixture) {
    let worker = start(&fixture, 1, Arc::new(PanicsOnce)).await;
    fixture.publish(&key("jobs"), "bang").await.expect("confirmed");
    wait_until("the second attempt", || worker.stats().acked() == 1).await;
    assert_eq!((worker.stats().panicked(), worker.stats().retried()), (1, 1));
}

/// A draining worker finishes and settles started deliveries, and accepts no new ones.
pub async fn drained_worker_finishes_started_deliveries(fixture: BusFixture) {
    let handler = BlockingHandler::new();
    let worker = start(&fixture, 1, handler.clone()).await;
    fixture.publish(&key("jobs"), "started").await.expect("confirmed");
    within_timeout("the handler", handler.entered.notified()).await;
    fixture.publish(&key("jobs"), "left").await.expect("confirmed");
    let stats = worker.stats().clone();
    let drain = tokio::spawn(worker.drain(Duration::from_secs(20)));
    handler.exit.add_permits(2);
    assert!(within_timeout("the drain", drain).await.expect("no panic"), "drained in time");
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    // The bus may deliver the second message between the ack of the first and the cancellation of the
    // consumer. The worker then finishes it as well, unless the consumer has already ended: the bus
    // then requeues it and counts the attempt.
    if stats.acked() == 1 {
        let left = next_delivery(&mut consumer).await;
        assert_eq!(text_of(&left), "left");
        assert!(left.attempt() <= 2, "{}", left.attempt());
        left.settle(Settlement::Ack).await.expect("acked");
    } else {
        assert_eq!(stats.acked(), 2);
    }
    assert_never("a finished delivery", consumer.next()).await;
}

/// Deliveries that do not finish within the grace period are returned, marked as redelivered.
pub async fn worker_returns_deliveries_after_grace(fixture: BusFixture) {
    let handler = BlockingHandler::new();
    let worker = start(&fixture, 1, handler.clone()).await;
    fixture.publish(&key("jobs"), "stuck").await.expect("confirmed");
    within_timeout("the handler", handler.entered.notified()).await;
    assert!(!worker.drain(Duration::from_millis(50)).await, "the handler still blocks");
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    let again = next_delivery(&mut consumer).await;
    assert!(again.is_redelivered());
    again.settle(Settlement::Ack).await.expect("acked");
}
