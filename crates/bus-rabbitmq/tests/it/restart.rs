//! Restarts and crashes of the broker.

use rockbot_bus::{Bus, Delivery, Settlement, Subscription};
use rockbot_contracts::QueueSpec;
use rockbot_testkit::{
    broker::PrivateBroker,
    fixture::{key, within_timeout, work_queue},
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    broker::TestBroker,
    test_process::{SHORT, TestProcess},
};

/// Number of processes that hold messages. A crash of the broker can cost a message one delivery for each of them.
const HOLDERS: usize = 12;

/// A queue that each holder consumes, and the deliveries of its message.
struct HeldQueue {
    queue: QueueSpec,
    prefetch: u16,
    sender: mpsc::Sender<Delivery>,
    deliveries: mpsc::Receiver<Delivery>,
    held: Vec<Delivery>,
}

impl HeldQueue {
    fn new(queue: QueueSpec, prefetch: u16) -> Self {
        let (sender, deliveries) = mpsc::channel(HOLDERS);
        Self { queue, prefetch, sender, deliveries, held: Vec::new() }
    }

    /// Holds the messages that a process receives.
    async fn hold(&self, process: &TestProcess) -> AbortOnDropHandle<()> {
        let subscription = Subscription::new(self.queue.clone(), self.prefetch);
        let consumer = within_timeout("subscribe", process.bus.consume(subscription)).await;
        let mut consumer = consumer.expect("subscribed");
        let held = self.sender.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                if held.send(delivery).await.is_err() {
                    break;
                }
            }
        }))
    }

    /// Waits for the next delivery of the message.
    async fn expect_delivery(&mut self, after: &str) {
        let name = &self.queue.name;
        let what = format!("the message of {name} after {after}");
        let delivery = within_timeout(&what, self.deliveries.recv()).await;
        let delivery = delivery.expect("the consumers run");
        self.held.push(delivery);
    }

    async fn ack(mut self) {
        let last = self.held.pop().expect("a delivery");
        within_timeout("an ack", last.settle(Settlement::Ack)).await.expect("acked");
    }
}

/// Covers a shutdown and a crash with one broker, since a start takes 10 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_messages_survive_restart_and_crash() {
    let broker = TestBroker::start(PrivateBroker::start).await;
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let process = TestProcess::connect(&url).await;
    let mut jobs = process.start_recorder("jobs").await;
    let stops: [fn(&mut PrivateBroker) -> anyhow::Result<()>; 2] =
        [PrivateBroker::shut_down, PrivateBroker::crash];
    // A queue without consumers until the broker has restarted.
    drop(process.start_recorder("later").await);
    let mut waiting = Vec::new();
    // Handlers consume a quarantine queue with a prefetch of 1.
    let quarantine = QueueSpec::quarantine(&key("held"));
    let mut queues = [HeldQueue::new(work_queue("held"), 4), HeldQueue::new(quarantine, 1)];
    let mut holders = Vec::new();
    for _ in 0..HOLDERS {
        let holder = process.join(&url).await;
        let tasks = [queues[0].hold(&holder).await, queues[1].hold(&holder).await];
        holders.push((holder, tasks));
    }
    for queue in &mut queues {
        process.publish_until_confirmed(queue.queue.name.as_str(), "held").await;
        queue.expect_delivery("the publish").await;
    }
    for (round, stop) in stops.into_iter().enumerate() {
        waiting.extend(
            process.publish_all_until_confirmed("later", &format!("waiting {round}"), 20).await,
        );
        let before =
            process.publish_all_until_confirmed("jobs", &format!("before {round}"), 20).await;
        broker.act(stop).await;
        process.wait_until_interrupted().await;
        process.publish("jobs", "lost", SHORT).await.expect_err("no broker");
        broker.act(PrivateBroker::restart).await;
        process.wait_until_ready("the restart").await;
        let after =
            process.publish_all_until_confirmed("jobs", &format!("after {round}"), 20).await;
        jobs.received(&before).await;
        jobs.received(&after).await;
        for queue in &mut queues {
            queue.expect_delivery(&format!("round {round}")).await;
        }
    }
    for queue in queues {
        queue.ack().await;
    }
    process.start_recorder("later").await.received(&waiting).await;
    process.bus.close().await;
}
