//! Settlement of deliveries.

use futures_util::FutureExt;
use rockbot_bus::{Settlement, Subscription};
use rockbot_contracts::{QueueSpec, topology::MAX_DELIVERIES};

use crate::fixture::{
    BusFixture, ack_next, assert_never, key, next_delivery, text_of, within_timeout, work_queue,
};

/// An ack is final.
pub async fn acked_delivery_is_not_redelivered(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    fixture.publish(&key("jobs"), "once").await.expect("confirmed");
    assert_eq!(ack_next(&mut consumer).await, "once");
    assert_never("a redelivery", consumer.next()).await;
    drop(consumer);
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    assert_never("a redelivery to another", consumer.next()).await;
}

/// Dropping the future of an ack does not undo the ack.
pub async fn started_ack_takes_effect(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    fixture.publish(&key("jobs"), "once").await.expect("confirmed");
    let _ = next_delivery(&mut consumer).await.settle(Settlement::Ack).now_or_never();
    fixture.publish(&key("jobs"), "the next").await.expect("confirmed");
    assert_eq!(ack_next(&mut consumer).await, "the next");
    drop(consumer);
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    assert_never("a redelivery", consumer.next()).await;
}

/// Deliveries settled on receipt need no ack and are not bounded by the prefetch.
pub async fn delivery_settled_on_receipt_is_not_redelivered(fixture: BusFixture) {
    let subscription = Subscription::on_receipt(work_queue("jobs"), 4);
    let mut consumer = fixture.remote.consume(subscription).await.expect("subscribed");
    let sent: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    fixture.publish_all(&key("jobs"), sent.clone()).await;
    let mut received = Vec::new();
    for _ in &sent {
        received.push(text_of(&next_delivery(&mut consumer).await));
    }
    assert_eq!(received, sent);
    assert_never("a redelivery", consumer.next()).await;
    drop(consumer);
    let mut consumer = fixture.consume(work_queue("jobs"), 4).await;
    assert_never("a redelivery to another", consumer.next()).await;
}

/// A consumer can see that an earlier one may have started the work.
pub async fn retried_delivery_is_marked_redelivered(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    fixture.publish(&key("jobs"), "twice").await.expect("confirmed");
    let first = next_delivery(&mut consumer).await;
    assert!(!first.is_redelivered());
    first.settle(Settlement::Retry).await.expect("returned");
    let second = next_delivery(&mut consumer).await;
    assert_eq!((text_of(&second).as_str(), second.attempt()), ("twice", 2));
    assert!(second.is_redelivered());
    second.settle(Settlement::Ack).await.expect("acked");
}

/// Dropping a delivery returns it to the queue.
pub async fn dropped_delivery_is_redelivered(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs"), 1).await;
    fixture.publish(&key("jobs"), "dropped").await.expect("confirmed");
    drop(next_delivery(&mut consumer).await);
    let again = next_delivery(&mut consumer).await;
    assert!(again.is_redelivered());
    again.settle(Settlement::Ack).await.expect("acked");
}

/// Operators find the message and the reason of its dead-lettering.
pub async fn dead_letter_keeps_body_and_reason(fixture: BusFixture) {
    let queue = work_queue("jobs");
    let mut consumer = fixture.consume(queue.clone(), 1).await;
    fixture.publish(&key("jobs"), "poison").await.expect("confirmed");
    let delivery = next_delivery(&mut consumer).await;
    let reason = Settlement::dead_letter("it makes no sense");
    within_timeout("dead-lettering", delivery.settle(reason)).await.expect("settled");
    let mut letters = fixture.consume(QueueSpec::dead_letters_of(&queue.name), 1).await;
    let letter = next_delivery(&mut letters).await;
    assert_eq!(text_of(&letter), "poison");
    assert_eq!(letter.envelope().dead_letter_reason.as_deref(), Some("it makes no sense"));
    assert_never("a redelivery", consumer.next()).await;
}

/// Dead letters can be inspected without limit, and returned ones keep their order.
pub async fn inspected_dead_letters_keep_their_order(fixture: BusFixture) {
    let queue = work_queue("jobs");
    let mut consumer = fixture.consume(queue.clone(), 1).await;
    let texts = ["a", "b", "c"].map(str::to_owned);
    for text in &texts {
        fixture.publish(&key("jobs"), text).await.expect("confirmed");
        let delivery = next_delivery(&mut consumer).await;
        let reason = Settlement::dead_letter("it makes no sense");
        within_timeout("dead-lettering", delivery.settle(reason)).await.expect("settled");
    }
    // More often than the default delivery limit of a broker.
    for _ in 0..25 {
        let mut letters = fixture.consume(QueueSpec::dead_letters_of(&queue.name), 3).await;
        let mut held = Vec::new();
        for text in &texts {
            let letter = next_delivery(&mut letters).await;
            assert_eq!(text_of(&letter), *text);
            held.push(letter);
        }
        letters.cancel().await;
        for letter in held {
            within_timeout("a return", letter.settle(Settlement::Retry)).await.expect("returned");
        }
    }
}

/// A message that cannot be processed is not redelivered forever.
pub async fn message_delivered_too_often_is_dead_lettered(fixture: BusFixture) {
    let queue = work_queue("jobs");
    let mut consumer = fixture.consume(queue.clone(), 1).await;
    fixture.publish(&key("jobs"), "poison").await.expect("confirmed");
    for attempt in 1..=MAX_DELIVERIES {
        let delivery = next_delivery(&mut consumer).await;
        assert_eq!(delivery.attempt(), attempt);
        delivery.settle(Settlement::Retry).await.expect("returned");
    }
    let mut letters = fixture.consume(QueueSpec::dead_letters_of(&queue.name), 1).await;
    assert_eq!(ack_next(&mut letters).await, "poison");
    assert_never("another delivery", consumer.next()).await;
}
