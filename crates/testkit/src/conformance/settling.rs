//! What becomes of a delivery.

use futures_util::FutureExt;
use rockbot_bus::{Settlement, Subscription};
use rockbot_contracts::{QueueSpec, topology::MAX_DELIVERIES};

use crate::bed::{Bed, key, never, next, soon, take, text_of, work};

/// Done is done.
pub async fn an_acked_delivery_does_not_come_again(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 1).await;
    bed.say(&key("jobs"), "once").await.expect("taken");
    assert_eq!(take(&mut consumer).await, "once");
    never("a redelivery", consumer.next()).await;
    drop(consumer);
    let mut consumer = bed.consume(work("jobs"), 1).await;
    never("a redelivery to another", consumer.next()).await;
}

/// Whoever stops waiting for an ack has acked.
pub async fn an_ack_that_began_takes_effect(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 1).await;
    bed.say(&key("jobs"), "once").await.expect("taken");
    let _ = next(&mut consumer).await.settle(Settlement::Ack).now_or_never();
    bed.say(&key("jobs"), "the next").await.expect("taken");
    assert_eq!(take(&mut consumer).await, "the next");
    drop(consumer);
    let mut consumer = bed.consume(work("jobs"), 1).await;
    never("a redelivery", consumer.next()).await;
}

/// A consumer that is done once it holds a message need not say so, and is not held up.
pub async fn what_is_settled_on_receipt_does_not_come_again(bed: Bed) {
    let subscription = Subscription::on_receipt(work("jobs"), 4);
    let mut consumer = bed.there.consume(subscription).await.expect("subscribed");
    let sent: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    bed.say_all(&key("jobs"), sent.clone()).await;
    let mut received = Vec::new();
    for _ in &sent {
        received.push(text_of(&next(&mut consumer).await));
    }
    assert_eq!(received, sent);
    never("a redelivery", consumer.next()).await;
    drop(consumer);
    let mut consumer = bed.consume(work("jobs"), 4).await;
    never("a redelivery to another", consumer.next()).await;
}

/// A worker must be able to tell that somebody may have begun before it.
pub async fn a_retried_delivery_comes_again_and_says_so(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 1).await;
    bed.say(&key("jobs"), "twice").await.expect("taken");
    let first = next(&mut consumer).await;
    assert!(!first.is_redelivered());
    first.settle(Settlement::Retry).await.expect("handed back");
    let second = next(&mut consumer).await;
    assert_eq!((text_of(&second).as_str(), second.attempt()), ("twice", 2));
    assert!(second.is_redelivered());
    second.settle(Settlement::Ack).await.expect("acked");
}

/// Forgetting a delivery is handing it back.
pub async fn a_dropped_delivery_comes_again(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 1).await;
    bed.say(&key("jobs"), "dropped").await.expect("taken");
    drop(next(&mut consumer).await);
    let again = next(&mut consumer).await;
    assert!(again.is_redelivered());
    again.settle(Settlement::Ack).await.expect("acked");
}

/// An operator finds the message and why it is there.
pub async fn a_dead_letter_keeps_its_body_and_the_reason(bed: Bed) {
    let queue = work("jobs");
    let mut consumer = bed.consume(queue.clone(), 1).await;
    bed.say(&key("jobs"), "poison").await.expect("taken");
    let delivery = next(&mut consumer).await;
    let reason = Settlement::dead_letter("it makes no sense");
    soon("dead-lettering", delivery.settle(reason)).await.expect("settled");
    let mut letters = bed.consume(QueueSpec::dead_letters_of(&queue.name), 1).await;
    let letter = next(&mut letters).await;
    assert_eq!(text_of(&letter), "poison");
    assert_eq!(letter.envelope().dead_letter_reason.as_deref(), Some("it makes no sense"));
    never("the message again", consumer.next()).await;
}

/// An operator may look as often as needed, and what is put back keeps its order.
pub async fn dead_letters_can_be_looked_at_often_and_stay_in_order(bed: Bed) {
    let queue = work("jobs");
    let mut consumer = bed.consume(queue.clone(), 1).await;
    let texts = ["a", "b", "c"].map(str::to_owned);
    for text in &texts {
        bed.say(&key("jobs"), text).await.expect("taken");
        let delivery = next(&mut consumer).await;
        let reason = Settlement::dead_letter("it makes no sense");
        soon("dead-lettering", delivery.settle(reason)).await.expect("settled");
    }
    // More often than a broker delivers what has no limit of its own.
    for _ in 0..25 {
        let mut letters = bed.consume(QueueSpec::dead_letters_of(&queue.name), 3).await;
        let mut held = Vec::new();
        for text in &texts {
            let letter = next(&mut letters).await;
            assert_eq!(text_of(&letter), *text);
            held.push(letter);
        }
        letters.cancel().await;
        for letter in held {
            soon("back", letter.settle(Settlement::Retry)).await.expect("handed back");
        }
    }
}

/// A message that nobody can work on does not go round for ever.
pub async fn a_message_delivered_too_often_becomes_a_dead_letter(bed: Bed) {
    let queue = work("jobs");
    let mut consumer = bed.consume(queue.clone(), 1).await;
    bed.say(&key("jobs"), "poison").await.expect("taken");
    for attempt in 1..=MAX_DELIVERIES {
        let delivery = next(&mut consumer).await;
        assert_eq!(delivery.attempt(), attempt);
        delivery.settle(Settlement::Retry).await.expect("handed back");
    }
    let mut letters = bed.consume(QueueSpec::dead_letters_of(&queue.name), 1).await;
    assert_eq!(take(&mut letters).await, "poison");
    never("one more delivery", consumer.next()).await;
}
