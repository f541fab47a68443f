//! Outcomes of a publish.

use std::time::Duration;

use rockbot_bus::{Assurance, Delivery, Publication, PublishError, Settlement};
use rockbot_contracts::{
    ContentTrust, Envelope, MessageId, QueueSpec, RoutingKey, TraceContext, envelope::TimeBudget,
    json::Limits,
};
use tokio::task::JoinSet;

use crate::fixture::{
    BusFixture, ack_many, ack_next, exclusive_queue, key, next_delivery, reply_address,
    text_message, within_timeout, work_queue,
};

/// `publish` returns when the bus has confirmed the message.
pub async fn confirmed_message_reaches_its_consumer(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 10).await;
    fixture.publish(&key("jobs"), "hello").await.expect("confirmed");
    assert_eq!(ack_next(&mut consumer).await, "hello");
}

/// A mandatory message without a bound queue fails at once.
pub async fn unroutable_message_is_an_error(fixture: BusFixture) {
    let error = fixture.publish(&key("no.consumer"), "hello").await.expect_err("no queue");
    assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
}

/// An announcement may have no consumer.
pub async fn unroutable_announcement_is_no_error(fixture: BusFixture) {
    let mut publication = Publication::announcement(key("no.consumer"), text_message("hello"));
    within_timeout("publish", fixture.local.publish(publication.clone())).await.expect("sent");
    publication.assurance = Assurance::Confirmed;
    within_timeout("publish", fixture.local.publish(publication)).await.expect("confirmed");
}

/// Concurrent publishes to routable and unroutable keys each return the outcome of their own message.
pub async fn concurrent_publishes_return_their_own_outcome(fixture: BusFixture) {
    let confirmed =
        publish_concurrently(fixture, work_queue("bound"), key("bound"), key("unbound"));
    assert_eq!(confirmed.await, 0, "unroutable messages were reported as delivered");
}

/// No delivered reply is reported as unroutable. An adapter may publish the replies to all callers on one
/// channel. Some replies to a missing caller may then be reported as delivered, but not all of them.
pub async fn delivered_reply_is_not_reported_as_unroutable(fixture: BusFixture) {
    let (present, gone) = (reply_address("caller", "present"), reply_address("caller", "gone"));
    let error = fixture.publish(&gone.reply_to(), "hello").await.expect_err("no queue");
    assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
    let confirmed =
        publish_concurrently(fixture, present.queue(), present.reply_to(), gone.reply_to()).await;
    assert!(confirmed < 200, "every reply to the missing caller was reported as delivered");
}

/// Publishes 200 messages to each key at once, and returns how many unroutable ones were confirmed.
async fn publish_concurrently(
    fixture: BusFixture,
    queue: QueueSpec,
    routable: RoutingKey,
    unroutable: RoutingKey,
) -> usize {
    let mut consumer = fixture.consume(queue, 1000).await;
    let mut publishers = JoinSet::new();
    for number in 0..400 {
        let is_routable = number % 2 == 0;
        let to = if is_routable { routable.clone() } else { unroutable.clone() };
        let fixture = fixture.clone();
        publishers.spawn(async move { (is_routable, fixture.publish(&to, "hello").await) });
    }
    let mut confirmed = 0;
    while let Some(outcome) = publishers.join_next().await {
        let (is_routable, result) = outcome.expect("no panic");
        match result {
            Ok(()) if is_routable => {}
            Ok(()) => confirmed += 1,
            Err(PublishError::Unroutable { .. }) => {
                assert!(!is_routable, "a delivered message was reported as unroutable");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(ack_many(&mut consumer, 200).await.len(), 200);
    confirmed
}

/// A full work queue rejects new messages and keeps the old ones.
pub async fn full_work_queue_rejects(fixture: BusFixture) {
    let queue = work_queue("small").with_max_length(5);
    let mut consumer = fixture.consume(queue, 1).await;
    let mut confirmed = 0;
    // The broker may briefly exceed the limit by a few messages, and one message is prefetched.
    let error = loop {
        match fixture.publish(&key("small"), &confirmed.to_string()).await {
            Ok(()) => confirmed += 1,
            Err(error) => break error,
        }
        assert!(confirmed < 200, "the queue has no bound");
    };
    assert!(matches!(error, PublishError::Refused { .. }), "{error}");
    let texts = ack_many(&mut consumer, confirmed).await;
    let expected: Vec<_> = (0..confirmed).map(|number| number.to_string()).collect();
    assert_eq!(texts, expected, "confirmed messages were lost or reordered");
}

/// A work queue is also bounded by the size of its messages.
pub async fn work_queue_full_by_size_rejects(fixture: BusFixture) {
    let _consumer = fixture.consume(work_queue("small").with_max_bytes(100_000), 1).await;
    let text = "x".repeat(10_000);
    let mut confirmed = 0;
    let error = loop {
        match fixture.publish(&key("small"), &text).await {
            Ok(()) => confirmed += 1,
            Err(error) => break error,
        }
        assert!(confirmed < 200, "the queue has no bound");
    };
    assert!(matches!(error, PublishError::Refused { .. }), "{error}");
}

/// Announcements to a slow process do not fill the broker.
pub async fn full_announcement_queue_drops_oldest(fixture: BusFixture) {
    let queue = exclusive_queue("slow", "news").with_max_length(3);
    let mut consumer = fixture.consume(queue, 1).await;
    fixture.publish(&key("news"), "held").await.expect("confirmed");
    let held = next_delivery(&mut consumer).await;
    fixture.publish_all(&key("news"), (0..10).map(|number| number.to_string())).await;
    held.settle(Settlement::Ack).await.expect("acked");
    assert_eq!(ack_many(&mut consumer, 3).await, ["7", "8", "9"]);
}

/// The sender enforces the size limit; the error contains the size and the limit.
pub async fn oversized_body_is_rejected_by_sender(fixture: BusFixture) {
    let _consumer = fixture.consume(work_queue("jobs"), 1).await;
    let limit = Limits::default().bytes;
    let error = fixture.publish(&key("jobs"), &"x".repeat(limit)).await.expect_err("too large");
    match error {
        PublishError::TooLarge { bytes, limit: reported } => {
            assert!(bytes > reported && reported == limit);
        }
        error => panic!("{error}"),
    }
    let largest = "x".repeat(limit - 2);
    fixture.publish(&key("jobs"), &largest).await.expect("exactly the limit fits");
}

/// An envelope arrives unchanged.
pub async fn envelope_arrives_unchanged(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 10).await;
    let mut sent = Envelope::raw("Everything", b"{\"a\":[1,null,\"\\u00fc\"]}".to_vec())
        .with_correlation_id("call-1")
        .reply_to(key("tool.result.agent.one"))
        .with_source("tester")
        .with_trust(ContentTrust::ToolOutput);
    sent.message_id = MessageId::new("message-1").expect("an id");
    sent.destination = Some("recipient".into());
    sent.budget = Some(TimeBudget {
        timeout: Duration::from_millis(1500),
        deadline_unix_ms: 1_900_000_000_000,
    });
    sent.tool_provider = Some("mcp".into());
    sent.mcp_server = Some("Exact Name".into());
    sent.accepts_input = true;
    sent.has_client_key = true;
    sent.trace = TraceContext {
        parent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        state: Some("vendor=1".into()),
    };
    let publication = Publication::mandatory(key("jobs"), sent.clone());
    fixture.local.publish(publication).await.expect("confirmed");
    let delivery = next_delivery(&mut consumer).await;
    assert_eq!(delivery.envelope(), &with_user_of(&delivery, sent));
    assert_eq!(delivery.routing_key(), &key("jobs"));
    assert_eq!((delivery.attempt(), delivery.is_redelivered()), (1, false));

    let plain = Envelope::raw("Plain", Vec::new()).transient();
    let publication = Publication::mandatory(key("jobs"), plain.clone());
    fixture.local.publish(publication).await.expect("confirmed");
    let delivery = next_delivery(&mut consumer).await;
    assert_eq!(delivery.envelope(), &with_user_of(&delivery, plain));
}

/// Returns `sent` with the user of `delivery`, which the broker adds.
fn with_user_of(delivery: &Delivery, sent: Envelope) -> Envelope {
    Envelope { user_id: delivery.envelope().user_id.clone(), ..sent }
}

/// Publishing on a closed bus fails at once.
pub async fn closed_bus_rejects_publish(fixture: BusFixture) {
    let _consumer = fixture.consume(QueueSpec::work(&key("jobs")), 1).await;
    within_timeout("close", fixture.local.close()).await;
    let error = fixture.publish(&key("jobs"), "hello").await.expect_err("closed");
    assert!(matches!(error, PublishError::Closed), "{error}");
    assert!(!fixture.local.is_ready());
}
