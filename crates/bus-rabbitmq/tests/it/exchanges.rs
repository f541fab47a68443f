//! Deletion of the exchange with all of its bindings.

use lapin::options::ExchangeDeleteOptions;
use rockbot_bus::PublishError;
use rockbot_testkit::fixture::test_broker_url;
use tokio::time::timeout;

use crate::fleet::{BACK_WITHIN, Fleet, SHORT};

async fn delete_exchanges(fleet: &Fleet) {
    let operator = fleet.operator().await;
    for name in [fleet.namespace.clone(), format!("{}.dlx", fleet.namespace)] {
        let delete = operator.exchange_delete(name.into(), ExchangeDeleteOptions::default());
        delete.await.expect("deleted");
    }
}

#[tokio::test]
async fn a_publish_that_finds_no_exchange_declares_it_again_and_arrives() {
    let here = Fleet::connect(&test_broker_url()).await;
    let there = here.join(&test_broker_url()).await;
    let mut recorder = there.record("jobs").await;
    here.insist("jobs", "before").await;
    recorder.receives("before").await;
    delete_exchanges(&here).await;
    here.say("jobs", "after", SHORT * 10).await.expect("sent again to the new exchange");
    recorder.receives("after").await;
}

#[tokio::test]
async fn consumers_bind_again_though_they_are_told_nothing() {
    let here = Fleet::connect(&test_broker_url()).await;
    let there = here.join(&test_broker_url()).await;
    let mut recorder = there.record("jobs").await;
    delete_exchanges(&here).await;
    // Until the queue is bound again, a publish is unroutable at once.
    let arrived = timeout(BACK_WITHIN, async {
        loop {
            match here.say("jobs", "after", SHORT * 5).await {
                Ok(()) => break,
                Err(PublishError::Unroutable { .. } | PublishError::Disconnected { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    arrived.await.expect("bound again in time");
    recorder.receives("after").await;
}
