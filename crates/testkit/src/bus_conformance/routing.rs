//! Routing of messages to queues.

use rockbot_contracts::BindingPattern;

use crate::fixture::{BusFixture, ack_next, assert_never, exclusive_queue, key, work_queue};

/// `*` matches exactly one word.
pub async fn star_matches_one_word(fixture: BusFixture) {
    let mut consumer = fixture.consume(exclusive_queue("a", "news.*.sport"), 10).await;
    for (to, routable) in [
        ("news.local.sport", true),
        ("news.sport", false),
        ("news.local.big.sport", false),
        ("news.local.weather", false),
    ] {
        assert_eq!(fixture.publish(&key(to), to).await.is_ok(), routable, "{to}");
    }
    assert_eq!(ack_next(&mut consumer).await, "news.local.sport");
    assert_never("another delivery", consumer.next()).await;
}

/// `#` matches zero or more words.
pub async fn hash_matches_zero_or_more_words(fixture: BusFixture) {
    let mut consumer = fixture.consume(exclusive_queue("a", "news.#"), 10).await;
    for to in ["news", "news.local", "news.local.big.sport"] {
        fixture.publish(&key(to), to).await.expect("bound");
        assert_eq!(ack_next(&mut consumer).await, to);
    }
    fixture.publish(&key("newspaper"), "no").await.expect_err("another word");
}

/// A queue receives one copy, however many of its bindings match.
pub async fn overlapping_bindings_deliver_once(fixture: BusFixture) {
    let mut queue = exclusive_queue("a", "news.#");
    queue.bindings.extend(["news.*", "news.local", "#"].map(BindingPattern::new));
    let mut consumer = fixture.consume(queue, 10).await;
    fixture.publish(&key("news.local"), "once").await.expect("bound");
    assert_eq!(ack_next(&mut consumer).await, "once");
    assert_never("a second copy", consumer.next()).await;
}

/// Announcements reach every process.
pub async fn exclusive_queues_receive_their_own_copy(fixture: BusFixture) {
    let mut one = fixture.consume(exclusive_queue("one", "news"), 10).await;
    let mut two = fixture.consume(exclusive_queue("two", "news"), 10).await;
    fixture.publish(&key("news"), "for all").await.expect("bound");
    assert_eq!(ack_next(&mut one).await, "for all");
    assert_eq!(ack_next(&mut two).await, "for all");
}

/// A monitor receives a copy beside the work queue.
pub async fn message_reaches_every_bound_queue(fixture: BusFixture) {
    let mut consumer = fixture.consume(work_queue("jobs.build"), 10).await;
    let mut monitor = fixture.consume(exclusive_queue("monitor", "jobs.#"), 10).await;
    fixture.publish(&key("jobs.build"), "job").await.expect("bound");
    assert_eq!(ack_next(&mut consumer).await, "job");
    assert_eq!(ack_next(&mut monitor).await, "job");
}
