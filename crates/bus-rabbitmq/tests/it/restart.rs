//! Restarts and crashes of the broker.

use rockbot_bus::Bus;
use rockbot_testkit::broker::PrivateBroker;

use crate::{
    broker::TestBroker,
    fleet::{Fleet, SHORT},
};

/// Covers a shutdown and a crash with one broker, since a start takes 10 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_messages_survive_restart_and_crash() {
    let broker = TestBroker::start(PrivateBroker::start).await;
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let fleet = Fleet::connect(&url).await;
    let mut jobs = fleet.record("jobs").await;
    let stops: [fn(&mut PrivateBroker) -> anyhow::Result<()>; 2] =
        [PrivateBroker::shut_down, PrivateBroker::crash];
    // A queue without consumers until the broker has restarted.
    drop(fleet.record("later").await);
    let mut waiting = Vec::new();
    for (round, stop) in stops.into_iter().enumerate() {
        waiting.extend(fleet.insist_on("later", &format!("waiting {round}"), 20).await);
        let before = fleet.insist_on("jobs", &format!("before {round}"), 20).await;
        broker.act(stop).await;
        fleet.wait_until_interrupted().await;
        fleet.say("jobs", "lost", SHORT).await.expect_err("no broker");
        broker.act(PrivateBroker::restart).await;
        fleet.wait_until_ready("the restart").await;
        let after = fleet.insist_on("jobs", &format!("after {round}"), 20).await;
        jobs.received(&before).await;
        jobs.received(&after).await;
    }
    fleet.record("later").await.received(&waiting).await;
    fleet.bus.close().await;
}
