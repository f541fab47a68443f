//! Restarts and crashes of the broker.

use rockbot_bus::Bus;
use rockbot_testkit::broker::PrivateBroker;

use crate::{
    broker::TestBroker,
    test_process::{SHORT, TestProcess},
};

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
    }
    process.start_recorder("later").await.received(&waiting).await;
    process.bus.close().await;
}
