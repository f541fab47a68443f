//! A queue is deleted, or is not what this process needs.

use lapin::{
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use rockbot_bus::{Bus, ConsumeError, Subscription};
use rockbot_testkit::fixture::{exclusive_queue, test_broker_url, work_queue};

use crate::fleet::Fleet;

#[tokio::test]
async fn a_queue_deleted_under_its_consumer_is_declared_again() {
    let fleet = Fleet::connect(&test_broker_url()).await;
    let mut recorder = fleet.record("jobs").await;
    fleet.insist("jobs", "before").await;
    recorder.receives("before").await;
    let operator = fleet.operator().await;
    let deleted = operator.queue_delete(fleet.on_broker("jobs"), QueueDeleteOptions::default());
    deleted.await.expect("deleted");
    fleet.insist("jobs", "after").await;
    fleet.back("the deletion").await;
    recorder.receives("after").await;
}

#[tokio::test]
async fn while_one_consumer_cannot_consume_the_bus_is_not_ready() {
    let fleet = Fleet::connect(&test_broker_url()).await;
    let _news = fleet.record_queue(exclusive_queue("one", "news")).await;
    let mut jobs = fleet.record("jobs").await;
    assert!(fleet.bus.is_ready());
    let operator = fleet.operator().await;
    // Somebody puts a queue of another kind in its place until it stays there.
    let name = fleet.on_broker("jobs");
    loop {
        let delete = operator.queue_delete(name.clone(), QueueDeleteOptions::default());
        delete.await.expect("deleted");
        let declare = operator.queue_declare(
            name.clone(),
            QueueDeclareOptions { exclusive: true, ..Default::default() },
            FieldTable::default(),
        );
        if declare.await.is_ok() {
            break;
        }
    }
    fleet.interrupted().await;
    let delete = operator.queue_delete(name, QueueDeleteOptions::default());
    delete.await.expect("deleted");
    fleet.back("the other queue is gone").await;
    fleet.insist("jobs", "after").await;
    jobs.receives("after").await;
}

#[tokio::test]
async fn a_queue_of_another_shape_is_refused_with_the_argument_and_both_values() {
    let fleet = Fleet::connect(&test_broker_url()).await;
    let _consumer = fleet.record("jobs").await;
    let other = Subscription::new(work_queue("jobs").with_max_length(7), 1);
    match fleet.bus.consume(other).await {
        Err(ConsumeError::Refused { queue, reason }) => {
            assert_eq!(queue, "jobs");
            for part in ["x-max-length = 100000", "declares x-max-length = 7", "delete the queue"] {
                assert!(reason.contains(part), "{part} is missing: {reason}");
            }
        }
        other => panic!("{other:?}"),
    }
}
