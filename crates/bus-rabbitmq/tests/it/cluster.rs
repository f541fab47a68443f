//! Loss of the majority of a cluster.

use rockbot_bus::{Bus, PublishError};
use rockbot_testkit::rabbitmq_cluster::PrivateCluster;
use tokio::time::{Instant, timeout};

use crate::{
    broker::TestBroker,
    test_process::{BACK_WITHIN, SHORT, TestProcess},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_fail_in_time_without_a_majority() {
    let cluster = TestBroker::start(PrivateCluster::start).await;
    let url = cluster.act(|cluster| Ok(cluster.amqp_url())).await;
    let process = TestProcess::connect(&url).await;
    let mut jobs = process.start_recorder("jobs").await;
    drop(process.start_recorder("later").await);
    let waiting = process.publish_all_until_confirmed("later", "waiting", 20).await;
    let before = process.publish_all_until_confirmed("jobs", "before", 20).await;

    cluster.act(PrivateCluster::crash_majority).await;
    let start = Instant::now();
    let error = process.publish("jobs", "maybe", SHORT * 2).await.expect_err("no majority");
    assert!(
        matches!(error, PublishError::Unconfirmed { .. } | PublishError::Disconnected { .. }),
        "{error:?}"
    );
    assert!(start.elapsed() < SHORT * 3, "{error} after {:?}", start.elapsed());

    cluster.act(PrivateCluster::restore_majority).await;
    timeout(BACK_WITHIN, process.publish_until_confirmed("jobs", "first"))
        .await
        .expect("back in time");
    process.wait_until_ready("the majority returned").await;
    let after = process.publish_all_until_confirmed("jobs", "after", 20).await;
    jobs.received(&before).await;
    jobs.received(&after).await;
    process.start_recorder("later").await.received(&waiting).await;
    process.bus.close().await;
}
