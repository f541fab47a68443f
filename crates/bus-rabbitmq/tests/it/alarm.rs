//! The broker is short of memory and blocks whoever publishes.

use rockbot_bus::{Bus, PublishError};
use rockbot_testkit::{broker::PrivateBroker, fixture::within_timeout};
use tokio::time::timeout;

use crate::{
    broker::Own,
    fleet::{Fleet, SHORT, reason_not_sent},
};

async fn memory_limit(broker: &Own<PrivateBroker>, share: &'static str) {
    broker.act(move |broker| broker.ctl(&["set_vm_memory_high_watermark", share])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_publishes_fail_by_their_time_out_say_why_and_work_again_after() {
    let broker = Own::start(PrivateBroker::start).await;
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let fleet = Fleet::connect(&url).await;
    let mut recorder = fleet.record("jobs").await;
    let mut confirmed = fleet.insist_on("jobs", "before", 5).await;
    let reader = fleet.join(&url).await;
    drop(fleet.record("later").await);
    let later = fleet.insist_on("later", "waiting", 5).await;
    memory_limit(&broker, "0.0000001").await;
    // The broker says that it blocks only once something is published; that may still go out.
    within_timeout("the publisher knows that it is blocked", async {
        while !matches!(
            fleet.say("jobs", "maybe", SHORT).await,
            Err(PublishError::Disconnected { .. })
        ) {}
    })
    .await;
    let reason = reason_not_sent(fleet.say("jobs", "never", SHORT).await);
    assert!(reason.contains("blocks publishers (low on memory)"), "{reason}");

    // A process that publishes nothing is not blocked.
    reader.record("later").await.received(&later).await;

    // A process that leaves meanwhile does not hang either.
    let leaving = fleet.join(&url).await;
    let _ = leaving.say("jobs", "maybe", SHORT).await;
    timeout(SHORT * 12, leaving.bus.close()).await.expect("it can leave");

    memory_limit(&broker, "0.9").await;
    confirmed.extend(fleet.insist_on("jobs", "after", 5).await);
    fleet.back("the alarm").await;
    recorder.received(&confirmed).await;
}
