//! The broker itself goes away and comes back with its data.

use rockbot_bus::Bus;
use rockbot_testkit::broker::PrivateBroker;

use crate::{
    broker::Own,
    fleet::{Fleet, SHORT},
};

/// In order and by a crash; one broker for both, since a start takes 10 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_or_crashed_the_broker_keeps_what_it_confirmed_and_everybody_is_back() {
    let broker = Own::start(PrivateBroker::start).await;
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let fleet = Fleet::connect(&url).await;
    let mut jobs = fleet.record("jobs").await;
    let crashes: [fn(&mut PrivateBroker) -> anyhow::Result<()>; 2] =
        [PrivateBroker::shut_down, PrivateBroker::crash];
    // A queue that nobody consumes before the broker has restarted.
    drop(fleet.record("later").await);
    let mut waiting = Vec::new();
    for (round, crash) in crashes.into_iter().enumerate() {
        waiting.extend(fleet.insist_on("later", &format!("waiting {round}"), 20).await);
        let before = fleet.insist_on("jobs", &format!("before {round}"), 20).await;
        broker.act(crash).await;
        fleet.interrupted().await;
        fleet.say("jobs", "lost", SHORT).await.expect_err("there is no broker");
        broker.act(PrivateBroker::restart).await;
        fleet.back("the broker is back").await;
        let after = fleet.insist_on("jobs", &format!("after {round}"), 20).await;
        jobs.received(&before).await;
        jobs.received(&after).await;
    }
    fleet.record("later").await.received(&waiting).await;
    fleet.bus.close().await;
}
