//! What a worker does with its deliveries.

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

use crate::bed::{Bed, key, never, next, soon, text_of, until, work};

/// Counts how many run at once, and lets them end when told.
struct Gate {
    running: AtomicU32,
    most: AtomicU32,
    entered: Notify,
    exit: Semaphore,
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::new(Self {
            running: AtomicU32::new(0),
            most: AtomicU32::new(0),
            entered: Notify::new(),
            exit: Semaphore::new(0),
        })
    }
}

impl Handler for Gate {
    fn handle<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            self.entered.notify_one();
            let exit = self.exit.acquire().await.expect("the gate stays");
            exit.forget();
            self.running.fetch_sub(1, Ordering::SeqCst);
            Settlement::Ack
        })
    }
}

async fn start(bed: &Bed, prefetch: u16, handler: Arc<dyn Handler>) -> Worker {
    let subscription = Subscription::new(work("jobs"), prefetch);
    Worker::start(bed.there.as_ref(), subscription, handler).await.expect("started")
}

/// Concurrency is bounded by the prefetch, and reaches it.
pub async fn a_worker_runs_as_many_tasks_as_its_prefetch(bed: Bed) {
    let gate = Gate::closed();
    let worker = start(&bed, 3, gate.clone()).await;
    bed.say_all(&key("jobs"), (0..9).map(|number| number.to_string())).await;
    until("three at once", || gate.running.load(Ordering::SeqCst) == 3).await;
    gate.exit.add_permits(9);
    until("all done", || worker.stats().acked() == 9).await;
    assert_eq!(gate.most.load(Ordering::SeqCst), 3);
    assert!(worker.drain(Duration::from_secs(5)).await);
}

/// Panics the first time, and acks the second.
struct PanicsOnce;

impl Handler for PanicsOnce {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async {
            assert!(delivery.is_redelivered(), "a panic on the first attempt, on purpose");
            Settlement::Ack
        })
    }
}

/// One bad message does not end the process, nor is it lost.
pub async fn a_worker_survives_a_panic_and_tries_again(bed: Bed) {
    let worker = start(&bed, 1, Arc::new(PanicsOnce)).await;
    bed.say(&key("jobs"), "bang").await.expect("taken");
    until("the second attempt", || worker.stats().acked() == 1).await;
    assert_eq!((worker.stats().panicked(), worker.stats().retried()), (1, 1));
}

/// A process that stops finishes and settles what it began, and takes nothing new.
pub async fn a_drained_worker_finishes_what_it_began(bed: Bed) {
    let gate = Gate::closed();
    let worker = start(&bed, 1, gate.clone()).await;
    bed.say(&key("jobs"), "begun").await.expect("taken");
    soon("the handler", gate.entered.notified()).await;
    bed.say(&key("jobs"), "left").await.expect("taken");
    let stats = worker.stats().clone();
    let drain = tokio::spawn(worker.drain(Duration::from_secs(20)));
    gate.exit.add_permits(2);
    assert!(soon("the drain", drain).await.expect("no panic"), "drained in time");
    let mut consumer = bed.consume(work("jobs"), 1).await;
    // The bus may hand the second out between the ack of the first and the end of the consumer.
    // Then it is finished too, unless it comes when the consumer has ended already: then the bus
    // takes it back, and counts that.
    if stats.acked() == 1 {
        let left = next(&mut consumer).await;
        assert_eq!(text_of(&left), "left");
        assert!(left.attempt() <= 2, "{}", left.attempt());
        left.settle(Settlement::Ack).await.expect("acked");
    } else {
        assert_eq!(stats.acked(), 2);
    }
    never("a finished one", consumer.next()).await;
}

/// Work that does not end in time is somebody else's, marked as begun.
pub async fn a_worker_out_of_grace_hands_its_work_back(bed: Bed) {
    let gate = Gate::closed();
    let worker = start(&bed, 1, gate.clone()).await;
    bed.say(&key("jobs"), "stuck").await.expect("taken");
    soon("the handler", gate.entered.notified()).await;
    assert!(!worker.drain(Duration::from_millis(50)).await, "it can't have drained");
    let mut consumer = bed.consume(work("jobs"), 1).await;
    let again = next(&mut consumer).await;
    assert!(again.is_redelivered());
    again.settle(Settlement::Ack).await.expect("acked");
}
