//! The broker is low on memory and blocks publishers.

use rockbot_bus::{Bus, PublishError};
use rockbot_testkit::{broker::PrivateBroker, fixture::within_timeout};
use tokio::time::timeout;

use crate::{
    broker::TestBroker,
    test_process::{PUBLISH_TIMEOUT, SHORT, TestProcess, reason_not_sent},
};

async fn memory_limit(broker: &TestBroker<PrivateBroker>, share: &'static str) {
    broker.act(move |broker| broker.ctl(&["set_vm_memory_high_watermark", share])).await;
}

/// Publishes until the broker has reported the block.
async fn detect_block(process: &TestProcess) {
    within_timeout("the publisher detects the block", async {
        while !matches!(
            process.publish("jobs", "maybe", SHORT).await,
            Err(PublishError::Disconnected { .. })
        ) {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_publish_times_out_with_the_reason() {
    let broker = TestBroker::start(PrivateBroker::start).await;
    let url = broker.act(|broker| Ok(broker.amqp_url())).await;
    let process = TestProcess::connect(&url).await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut confirmed = process.publish_all_until_confirmed("jobs", "before", 5).await;
    let reader = process.join(&url).await;
    drop(process.start_recorder("later").await);
    let later = process.publish_all_until_confirmed("later", "waiting", 5).await;
    memory_limit(&broker, "0.0000001").await;
    // The broker reports the block only after a publish, which may still succeed.
    detect_block(&process).await;
    let reason = reason_not_sent(process.publish("jobs", "never", SHORT).await);
    assert!(reason.contains("blocks publishers (low on memory)"), "{reason}");

    // A process that does not publish is not blocked.
    reader.start_recorder("later").await.received(&later).await;

    // Closing does not hang meanwhile.
    let closing = process.join(&url).await;
    detect_block(&closing).await;
    let waiting = closing.publish("jobs", "never", PUBLISH_TIMEOUT);
    let close = timeout(SHORT * 12, closing.bus.close());
    let (published, closed) = tokio::join!(waiting, close);
    closed.expect("closed in time");
    // One that was written before the block was reported has no confirmation.
    let is_expected =
        matches!(published, Err(PublishError::Closed | PublishError::Unconfirmed { .. }));
    assert!(is_expected, "{published:?}");

    memory_limit(&broker, "0.9").await;
    confirmed.extend(process.publish_all_until_confirmed("jobs", "after", 5).await);
    process.wait_until_ready("the alarm").await;
    recorder.received(&confirmed).await;
}
