//! Loss of the majority of a cluster.

use rockbot_bus::{Bus, PublishError};
use rockbot_testkit::cluster::PrivateCluster;
use tokio::time::{Instant, timeout};

use crate::{
    broker::TestBroker,
    fleet::{BACK_WITHIN, Fleet, SHORT},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_fail_in_time_without_a_majority() {
    let cluster = TestBroker::start(PrivateCluster::start).await;
    let url = cluster.act(|cluster| Ok(cluster.amqp_url())).await;
    let fleet = Fleet::connect(&url).await;
    let mut jobs = fleet.record("jobs").await;
    drop(fleet.record("later").await);
    let waiting = fleet.insist_on("later", "waiting", 20).await;
    let before = fleet.insist_on("jobs", "before", 20).await;

    cluster.act(PrivateCluster::crash_majority).await;
    let start = Instant::now();
    let error = fleet.say("jobs", "maybe", SHORT * 2).await.expect_err("no majority");
    assert!(
        matches!(error, PublishError::Unconfirmed { .. } | PublishError::Disconnected { .. }),
        "{error:?}"
    );
    assert!(start.elapsed() < SHORT * 3, "{error} after {:?}", start.elapsed());

    cluster.act(PrivateCluster::restore_majority).await;
    timeout(BACK_WITHIN, fleet.insist("jobs", "first")).await.expect("back in time");
    fleet.wait_until_ready("the majority returned").await;
    let after = fleet.insist_on("jobs", "after", 20).await;
    jobs.received(&before).await;
    jobs.received(&after).await;
    fleet.record("later").await.received(&waiting).await;
    fleet.bus.close().await;
}
