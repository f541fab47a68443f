//! Deliveries to consumers.

use std::collections::HashSet;

use rockbot_bus::{ConsumeError, QueueState, Settlement, Subscription};
use rockbot_contracts::QueueName;

use crate::fixture::{
    BusFixture, ack_many, ack_next, assert_never, exclusive_queue, key, next_delivery, text_of,
    within_timeout, work_queue,
};

/// Consumers of one queue share its messages.
pub async fn competing_consumers_get_each_message_once(fixture: BusFixture) {
    let mut one = fixture.consume(work_queue("jobs"), 1).await;
    let mut two = fixture.consume(work_queue("jobs"), 1).await;
    fixture.publish_all(&key("jobs"), (0..20).map(|number| number.to_string())).await;
    let mut seen = HashSet::new();
    let mut shares = [0, 0];
    for _ in 0..20 {
        let (share, delivery) = within_timeout("a delivery", async {
            tokio::select! {
                delivery = one.next() => (0, delivery.expect("alive")),
                delivery = two.next() => (1, delivery.expect("alive")),
            }
        })
        .await;
        let text = text_of(&delivery);
        delivery.settle(Settlement::Ack).await.expect("acked");
        shares[share] += 1;
        assert!(seen.insert(text.clone()), "{text} was delivered twice");
    }
    assert_eq!(shares[0] + shares[1], 20);
    assert_never("an extra message", one.next()).await;
    assert_never("an extra message", two.next()).await;
}

/// Messages of one publisher arrive in publishing order.
pub async fn messages_keep_their_order(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 7).await;
    let sent: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    fixture.publish_all(&key("jobs"), sent.clone()).await;
    assert_eq!(ack_many(&mut consumer, 50).await, sent);
}

/// A work queue outlives its consumers.
pub async fn messages_wait_for_a_consumer(fixture: BusFixture) {
    drop(fixture.consume(work_queue("jobs"), 1).await);
    fixture.publish_all(&key("jobs"), ["a".to_owned(), "b".to_owned()]).await;
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    assert_eq!(ack_many(&mut consumer, 2).await, ["a", "b"]);
}

/// Unsettled deliveries never exceed the prefetch.
pub async fn prefetch_bounds_unsettled_deliveries(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 2).await;
    fixture.publish_all(&key("jobs"), (0..4).map(|number| number.to_string())).await;
    let first = next_delivery(&mut consumer).await;
    let _second = next_delivery(&mut consumer).await;
    assert_never("a third delivery", consumer.next()).await;
    first.settle(Settlement::Ack).await.expect("acked");
    assert_eq!(ack_next(&mut consumer).await, "2");
}

/// A process that stops can finish its deliveries instead of returning them.
pub async fn cancelled_consumer_yields_its_deliveries_and_ends(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 10).await;
    fixture.publish(&key("jobs"), "before").await.expect("confirmed");
    let held = next_delivery(&mut consumer).await;
    within_timeout("cancel", consumer.cancel()).await;
    fixture.publish(&key("jobs"), "after").await.expect("confirmed");
    assert!(within_timeout("the end", consumer.next()).await.is_none());
    assert_eq!(text_of(&held), "before");
    held.settle(Settlement::Ack).await.expect("a held delivery can still be settled");
    assert_eq!(ack_next(&mut fixture.consume(work_queue("jobs"), 10).await).await, "after");
}

/// No message is lost with a dropped consumer.
pub async fn dropped_consumer_returns_its_deliveries(fixture: BusFixture) {
    let mut leaving = fixture.consume(work_queue("jobs"), 1).await;
    fixture.publish_all(&key("jobs"), (0..3).map(|number| number.to_string())).await;
    let held = next_delivery(&mut leaving).await;
    let mut staying = fixture.consume(work_queue("jobs"), 1).await;
    drop(held);
    drop(leaving);
    let mut texts = ack_many(&mut staying, 3).await;
    texts.sort();
    assert_eq!(texts, ["0", "1", "2"]);
}

/// A process that closes its bus does not block on a consumer.
pub async fn closed_bus_ends_its_consumers(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    within_timeout("close", fixture.remote.close()).await;
    assert!(within_timeout("the end", consumer.next()).await.is_none());
    let again = fixture.remote.consume(Subscription::new(work_queue("jobs"), 1));
    let error = within_timeout("an error", again).await.expect_err("closed");
    assert!(matches!(error, ConsumeError::Closed), "{error}");
}

/// Two builds with different declarations of a queue fail at once.
pub async fn conflicting_queue_declaration_is_rejected(fixture: BusFixture) {
    let _consumer = fixture.consume(work_queue("jobs"), 1).await;
    let other = Subscription::new(work_queue("jobs").with_max_length(7), 1);
    let consuming = fixture.local.consume(other);
    let error = within_timeout("an error", consuming).await.expect_err("another length");
    match error {
        ConsumeError::Refused { queue, reason } => {
            assert_eq!(queue, "jobs");
            assert!(reason.contains("max-length") || reason.contains("max_length"), "{reason}");
        }
        error => panic!("{error}"),
    }
}

/// Operators see the ready messages and the consumers of a queue.
pub async fn inspect_counts_messages_and_consumers(fixture: BusFixture) {
    let _one = fixture.consume(exclusive_queue("one", "news"), 1).await;
    drop(fixture.consume(work_queue("jobs"), 1).await);
    fixture.publish_all(&key("jobs"), ["a".to_owned(), "b".to_owned()]).await;
    let names = ["jobs", "missing"].map(|name| QueueName::new(name).expect("a name"));
    within_timeout("the counts", async {
        loop {
            let report = fixture.local.inspect(&names).await.expect("a report");
            assert!(!report.product.is_empty());
            assert_eq!(report.queues[1].state, QueueState::Missing);
            let depth = report.queues[0].depth().expect("it exists");
            if (depth.ready, depth.consumers) == (2, 0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _consumer = fixture.consume(work_queue("jobs"), 1).await;
    let report = fixture.local.inspect(&names).await.expect("a report");
    assert_eq!(report.queues[0].depth().expect("it exists").consumers, 1);
}

/// The queue of a consumer whose task ended by a panic is no longer consumed, and the bus reports it.
pub async fn panicked_consumer_task_ends_readiness(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    assert!(fixture.remote.is_ready());
    fixture.publish(&key("jobs"), "bang").await.expect("confirmed");
    let task = tokio::spawn(async move {
        let delivery = consumer.next().await;
        assert!(delivery.is_none(), "a panic of the consumer's task, on purpose");
    });
    within_timeout("the panic", task).await.expect_err("a panic");
    assert!(!fixture.remote.is_ready());
}
