//! Restarts and crashes of the broker.

use rockbot_bus::{Bus, Delivery, Settlement, Subscription};
use rockbot_testkit::{
    broker::PrivateBroker,
    fixture::{within_timeout, work_queue},
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    broker::TestBroker,
    test_process::{SHORT, TestProcess},
};

/// Number of consumers. A crash of the broker can cost a message one delivery for each of them.
const HOLDERS: usize = 12;

/// A process that holds the messages of a queue.
struct Holder {
    _process: TestProcess,
    _task: AbortOnDropHandle<()>,
}

impl Holder {
    async fn start(process: &TestProcess, url: &str, held: mpsc::Sender<Delivery>) -> Self {
        let process = process.join(url).await;
        let subscription = Subscription::new(work_queue("held"), 4);
        let consumer = within_timeout("subscribe", process.bus.consume(subscription)).await;
        let mut consumer = consumer.expect("subscribed");
        let task = tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                if held.send(delivery).await.is_err() {
                    break;
                }
            }
        });
        Self { _process: process, _task: AbortOnDropHandle::new(task) }
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
    let (sender, mut deliveries) = mpsc::channel(HOLDERS);
    let mut holders = Vec::new();
    for _ in 0..HOLDERS {
        holders.push(Holder::start(&process, &url, sender.clone()).await);
    }
    process.publish_until_confirmed("held", "held").await;
    let first = within_timeout("the message", deliveries.recv()).await;
    let mut held = vec![first.expect("the consumers run")];
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
        let again = within_timeout("the redelivery of a held message", deliveries.recv()).await;
        let again = again.expect("the consumers run");
        println!("delivery {} after round {round}", again.attempt());
        held.push(again);
    }
    let last = held.pop().expect("a delivery");
    within_timeout("an ack", last.settle(Settlement::Ack)).await.expect("acked");
    process.start_recorder("later").await.received(&waiting).await;
    process.bus.close().await;
}
