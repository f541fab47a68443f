//! A cluster loses its majority.

use rockbot_bus::{Bus, PublishError};
use rockbot_testkit::cluster::PrivateCluster;
use tokio::time::{Instant, timeout};

use crate::{
    broker::Own,
    fleet::{BACK_WITHIN, Fleet, SHORT},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_publishes_fail_in_time_and_with_it_all_is_well_again() {
    let cluster = Own::start(PrivateCluster::start).await;
    let url = cluster.act(|cluster| Ok(cluster.amqp_url())).await;
    let fleet = Fleet::connect(&url).await;
    let mut jobs = fleet.record("jobs").await;
    drop(fleet.record("later").await);
    let waiting = fleet.insist_on("later", "waiting", 20).await;
    let before = fleet.insist_on("jobs", "before", 20).await;

    cluster.act(PrivateCluster::crash_majority).await;
    let began = Instant::now();
    let error = fleet.say("jobs", "maybe", SHORT * 2).await.expect_err("there is no majority");
    assert!(
        matches!(error, PublishError::Unconfirmed { .. } | PublishError::Disconnected { .. }),
        "{error:?}"
    );
    assert!(began.elapsed() < SHORT * 3, "{error} after {:?}", began.elapsed());

    cluster.act(PrivateCluster::restore_majority).await;
    timeout(BACK_WITHIN, fleet.insist("jobs", "first")).await.expect("back in time");
    fleet.back("the majority is back").await;
    let after = fleet.insist_on("jobs", "after", 20).await;
    jobs.received(&before).await;
    jobs.received(&after).await;
    fleet.record("later").await.received(&waiting).await;
    fleet.bus.close().await;
}
