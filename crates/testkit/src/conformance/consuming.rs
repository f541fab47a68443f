//! What a consumer gets, and when.

use std::collections::HashSet;

use rockbot_bus::{ConsumeError, Look, Settlement, Subscription};
use rockbot_contracts::QueueName;

use crate::bed::{Bed, exclusive, key, never, next, soon, take, take_many, text_of, work};

/// Consumers of one queue share its messages.
pub async fn competing_consumers_get_each_message_once(bed: Bed) {
    let mut one = bed.consume(work("jobs"), 1).await;
    let mut two = bed.consume(work("jobs"), 1).await;
    bed.say_all(&key("jobs"), (0..20).map(|number| number.to_string())).await;
    let mut seen = HashSet::new();
    let mut shares = [0, 0];
    for _ in 0..20 {
        let (share, delivery) = soon("a delivery", async {
            tokio::select! {
                delivery = one.next() => (0, delivery.expect("alive")),
                delivery = two.next() => (1, delivery.expect("alive")),
            }
        })
        .await;
        let text = text_of(&delivery);
        delivery.settle(Settlement::Ack).await.expect("acked");
        shares[share] += 1;
        assert!(seen.insert(text.clone()), "{text} came twice");
    }
    assert_eq!(shares[0] + shares[1], 20);
    never("a message too many", one.next()).await;
    never("a message too many", two.next()).await;
}

/// One publisher's messages come in the order it published them.
pub async fn messages_keep_their_order(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 7).await;
    let sent: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    bed.say_all(&key("jobs"), sent.clone()).await;
    assert_eq!(take_many(&mut consumer, 50).await, sent);
}

/// A work queue outlives its consumers.
pub async fn messages_wait_for_a_consumer(bed: Bed) {
    drop(bed.consume(work("jobs"), 1).await);
    bed.say_all(&key("jobs"), ["a".to_owned(), "b".to_owned()]).await;
    let mut consumer = bed.consume(work("jobs"), 1).await;
    assert_eq!(take_many(&mut consumer, 2).await, ["a", "b"]);
}

/// No more deliveries are in hand than asked for.
pub async fn prefetch_bounds_unsettled_deliveries(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 2).await;
    bed.say_all(&key("jobs"), (0..4).map(|number| number.to_string())).await;
    let first = next(&mut consumer).await;
    let _second = next(&mut consumer).await;
    never("a third delivery", consumer.next()).await;
    first.settle(Settlement::Ack).await.expect("acked");
    assert_eq!(take(&mut consumer).await, "2");
}

/// Cancelling is how a process stops without giving work back.
pub async fn a_cancelled_consumer_hands_out_what_it_holds_and_ends(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 10).await;
    bed.say(&key("jobs"), "before").await.expect("taken");
    let held = next(&mut consumer).await;
    soon("cancel", consumer.cancel()).await;
    bed.say(&key("jobs"), "after").await.expect("taken");
    assert!(soon("the end", consumer.next()).await.is_none());
    assert_eq!(text_of(&held), "before");
    held.settle(Settlement::Ack).await.expect("a delivery in hand can still be settled");
    assert_eq!(take(&mut bed.consume(work("jobs"), 10).await).await, "after");
}

/// Nothing is stuck with a consumer that went away.
pub async fn what_a_cancelled_consumer_leaves_goes_to_others(bed: Bed) {
    let mut leaving = bed.consume(work("jobs"), 1).await;
    bed.say_all(&key("jobs"), (0..3).map(|number| number.to_string())).await;
    let held = next(&mut leaving).await;
    let mut staying = bed.consume(work("jobs"), 1).await;
    drop(held);
    drop(leaving);
    let mut texts = take_many(&mut staying, 3).await;
    texts.sort();
    assert_eq!(texts, ["0", "1", "2"]);
}

/// A process that closes its bus does not hang on it.
pub async fn closing_the_bus_ends_its_consumers(bed: Bed) {
    let mut consumer = bed.consume(work("jobs"), 1).await;
    soon("close", bed.there.close()).await;
    assert!(soon("the end", consumer.next()).await.is_none());
    let again = bed.there.consume(Subscription::new(work("jobs"), 1));
    let error = soon("an answer", again).await.expect_err("closed");
    assert!(matches!(error, ConsumeError::Closed), "{error}");
}

/// Two builds that disagree about a queue find out at once.
pub async fn a_queue_is_not_redeclared_with_another_shape(bed: Bed) {
    let _consumer = bed.consume(work("jobs"), 1).await;
    let other = Subscription::new(work("jobs").with_max_length(7), 1);
    let error = soon("an answer", bed.here.consume(other)).await.expect_err("another length");
    match error {
        ConsumeError::Refused { queue, reason } => {
            assert_eq!(queue, "jobs");
            assert!(reason.contains("max-length") || reason.contains("max_length"), "{reason}");
        }
        error => panic!("{error}"),
    }
}

/// An operator sees what waits and who reads.
pub async fn an_inspection_counts_messages_and_consumers(bed: Bed) {
    let _one = bed.consume(exclusive("one", "news"), 1).await;
    drop(bed.consume(work("jobs"), 1).await);
    bed.say_all(&key("jobs"), ["a".to_owned(), "b".to_owned()]).await;
    let names = ["jobs", "missing"].map(|name| QueueName::new(name).expect("a name"));
    soon("the counts", async {
        loop {
            let report = bed.here.inspect(&names).await.expect("a report");
            assert!(!report.product.is_empty());
            assert_eq!(report.queues[1].look, Look::Missing);
            let depth = report.queues[0].depth().expect("it exists");
            if (depth.ready, depth.consumers) == (2, 0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _consumer = bed.consume(work("jobs"), 1).await;
    let report = bed.here.inspect(&names).await.expect("a report");
    assert_eq!(report.queues[0].depth().expect("it exists").consumers, 1);
}
