//! Messages that AMQP can't encode, headers that a publisher sets wrongly, and requests from senders with
//! other clocks.

use std::time::Duration;

use lapin::{
    BasicProperties,
    options::BasicPublishOptions,
    types::{AMQPValue, FieldTable},
};
use rockbot_bus::{Bus, Publication, PublishError, Settlement, Subscription};
use rockbot_testkit::fixture::{
    key, next_delivery, test_broker_url, text_message, within_timeout, work_queue,
};

use crate::test_process::TestProcess;

#[tokio::test]
async fn error_names_oversized_id_or_headers() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let mut recorder = process.start_recorder("jobs").await;
    let mut long_id = text_message("too long");
    long_id.correlation_id = Some("x".repeat(300).into());
    let mut long_header = text_message("too long");
    long_header.source = Some("x".repeat(70_000).into());
    for (envelope, part) in
        [(long_id, "correlation_id has 300 bytes"), (long_header, "all headers has 70")]
    {
        let published = process.bus.publish(Publication::mandatory(key("jobs"), envelope)).await;
        match published {
            Err(PublishError::Unsendable { reason }) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    process.publish_until_confirmed("jobs", "after").await;
    recorder.receives("after").await;
}

/// The broker passes on a publisher's `x-delivery-count` until the first redelivery, when it sets its own.
#[tokio::test]
async fn delivery_count_set_by_publisher_is_ignored() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let subscription = Subscription::new(work_queue("jobs"), 1);
    let mut consumer = process.bus.consume(subscription).await.expect("subscribed");
    let mut headers = FieldTable::default();
    headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(u32::MAX.into()));
    let operator = process.operator().await;
    let sent = operator.basic_publish(
        process.namespace.as_str().into(),
        "jobs".into(),
        BasicPublishOptions::default(),
        b"{}",
        BasicProperties::default().with_headers(headers),
    );
    within_timeout("the message is sent", sent).await.expect("sent");
    for attempt in 1..=3 {
        let delivery = next_delivery(&mut consumer).await;
        assert_eq!(delivery.attempt(), attempt);
        delivery.settle(Settlement::Retry).await.expect("settled");
    }
}

/// The clock of the sender is 90 s behind.
#[tokio::test]
async fn request_from_sender_with_slow_clock_is_not_expired() {
    let process = TestProcess::connect(&test_broker_url()).await;
    let subscription = Subscription::new(work_queue("jobs"), 2);
    let mut consumer = process.bus.consume(subscription).await.expect("subscribed");
    let minute = Duration::from_secs(60);
    let mut publishing = tokio::time::interval(Duration::from_secs(3));
    within_timeout("a fresh delivery", async {
        loop {
            let delivery = tokio::select! {
                delivery = consumer.next() => delivery.expect("alive"),
                _ = publishing.tick() => {
                    let mut request = text_message("?").within(minute);
                    let budget = request.budget.as_mut().expect("a budget");
                    budget.deadline_unix_ms -= 90_000;
                    let publication = Publication::mandatory(key("jobs"), request);
                    process.bus.publish(publication).await.expect("published");
                    continue;
                }
            };
            let left = delivery.envelope().remaining().expect("a budget");
            delivery.settle(Settlement::Ack).await.expect("acked");
            if left > minute / 2 {
                break;
            }
        }
    })
    .await;
}
