//! Deleted queues, and queues with other arguments.

use std::time::Duration;

use lapin::{
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use rockbot_bus::{Bus, ConsumeError, Request, Requester, Subscription, subscribe};
use rockbot_testkit::fixture::{
    TEST_TIMEOUT, ack_next, exclusive_queue, key, reply_address, test_broker_url, text_message,
    work_queue,
};

use crate::test_process::TestProcess;

#[tokio::test]
async fn deleted_queue_is_declared_again() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let mut recorder = process.start_recorder("jobs").await;
    process.publish_until_confirmed("jobs", "before").await;
    recorder.receives("before").await;
    let operator = process.operator().await;
    let deleted = operator.queue_delete(process.queue_name("jobs"), QueueDeleteOptions::default());
    deleted.await.expect("deleted");
    process.publish_until_confirmed("jobs", "after").await;
    process.wait_until_ready("the deletion").await;
    recorder.receives("after").await;
}

#[tokio::test]
async fn request_is_retried_after_deletion_of_its_reply_queue() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let subscription = Subscription::new(work_queue("requests"), 10);
    let mut requests = process.bus.consume(subscription).await.expect("subscribed");
    let requester = Requester::new(process.bus.clone(), reply_address("caller", "one"));
    let request = Request {
        key: key("requests"),
        envelope: text_message("?").with_correlation_id("the-call"),
        timeout: TEST_TIMEOUT,
        grace: Duration::ZERO,
        on_interim: None,
        retry: true,
        abandoned: None,
    };
    let handling = async {
        assert_eq!(ack_next(&mut requests).await, "?");
        let operator = process.operator().await;
        let replies = process.queue_name(requester.address().queue().name.as_str());
        let deleted = operator.queue_delete(replies, QueueDeleteOptions::default());
        deleted.await.expect("deleted");
        process.reply_to_retry(&mut requests).await
    };
    let (reply, retry) = tokio::join!(requester.request(request), handling);
    reply.expect("a reply");
    assert_eq!((retry.attempt, requester.stats().retries()), (2, 1));
}

#[tokio::test]
async fn bus_is_not_ready_while_a_consumer_is_interrupted() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let _news = process.start_queue_recorder(exclusive_queue("one", "news")).await;
    let mut jobs = process.start_recorder("jobs").await;
    assert!(process.bus.is_ready());
    let name = process.queue_name("jobs");
    // Replaces the queue by one of another kind, until the consumer does not declare its own first. A refused
    // declaration closes its channel.
    let operator = loop {
        let operator = process.operator().await;
        let delete = operator.queue_delete(name.clone(), QueueDeleteOptions::default());
        delete.await.expect("deleted");
        let declare = operator.queue_declare(
            name.clone(),
            QueueDeclareOptions { exclusive: true, ..Default::default() },
            FieldTable::default(),
        );
        if declare.await.is_ok() {
            break operator;
        }
    };
    process.wait_until_interrupted().await;
    let delete = operator.queue_delete(name, QueueDeleteOptions::default());
    delete.await.expect("deleted");
    process.wait_until_ready("the deletion of the other queue").await;
    process.publish_until_confirmed("jobs", "after").await;
    jobs.receives("after").await;
}

#[tokio::test]
async fn queue_with_other_arguments_is_refused_with_both_values() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let _consumer = process.start_recorder("jobs").await;
    let other = Subscription::new(work_queue("jobs").with_max_length(7), 1);
    match process.bus.consume(other).await {
        Err(ConsumeError::Refused { queue, reason }) => {
            assert_eq!(queue, "jobs");
            for part in ["x-max-length = 100000", "declares x-max-length = 7", "delete the queue"] {
                assert!(reason.contains(part), "{part} is missing: {reason}");
            }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn exclusive_queue_of_a_lost_connection_is_waited_for() {
    let url = test_broker_url();
    let before = TestProcess::connect(&url).await;
    let queue = || Subscription::new(exclusive_queue("one", "news"), 1);
    let _held = before.bus.consume(queue()).await.expect("subscribed");
    let restarted = before.join(&url).await;
    match restarted.bus.consume(queue()).await {
        Err(ConsumeError::InUse { queue }) => assert!(queue.contains("one"), "{queue}"),
        other => panic!("{other:?}"),
    }
    let bus = restarted.bus.clone();
    let waiting = tokio::spawn(async move { subscribe(&*bus, queue(), TEST_TIMEOUT).await });
    before.bus.close().await;
    waiting.await.expect("no panic").expect("subscribed once the connection is gone");
}
