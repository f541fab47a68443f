//! Which queues a message goes to.

use rockbot_contracts::BindingPattern;

use crate::bed::{Bed, exclusive, key, never, take, work};

/// `*` is exactly one word.
pub async fn a_star_stands_for_one_word(bed: Bed) {
    let mut consumer = bed.consume(exclusive("a", "news.*.sport"), 10).await;
    for (to, routable) in [
        ("news.local.sport", true),
        ("news.sport", false),
        ("news.local.big.sport", false),
        ("news.local.weather", false),
    ] {
        assert_eq!(bed.say(&key(to), to).await.is_ok(), routable, "{to}");
    }
    assert_eq!(take(&mut consumer).await, "news.local.sport");
    never("another delivery", consumer.next()).await;
}

/// `#` is any number of words, none included.
pub async fn a_hash_stands_for_any_number_of_words(bed: Bed) {
    let mut consumer = bed.consume(exclusive("a", "news.#"), 10).await;
    for to in ["news", "news.local", "news.local.big.sport"] {
        bed.say(&key(to), to).await.expect("bound");
        assert_eq!(take(&mut consumer).await, to);
    }
    bed.say(&key("newspaper"), "no").await.expect_err("another word");
}

/// A queue gets one copy however many of its bindings match.
pub async fn overlapping_bindings_deliver_once(bed: Bed) {
    let mut queue = exclusive("a", "news.#");
    queue.bindings.extend(["news.*", "news.local", "#"].map(BindingPattern::new));
    let mut consumer = bed.consume(queue, 10).await;
    bed.say(&key("news.local"), "once").await.expect("bound");
    assert_eq!(take(&mut consumer).await, "once");
    never("a second copy", consumer.next()).await;
}

/// Announcements reach every process.
pub async fn every_exclusive_queue_gets_its_own_copy(bed: Bed) {
    let mut one = bed.consume(exclusive("one", "news"), 10).await;
    let mut two = bed.consume(exclusive("two", "news"), 10).await;
    bed.say(&key("news"), "for all").await.expect("bound");
    assert_eq!(take(&mut one).await, "for all");
    assert_eq!(take(&mut two).await, "for all");
}

/// A monitor can listen beside the queue that does the work.
pub async fn a_message_goes_to_every_kind_of_queue_bound_for_it(bed: Bed) {
    let mut worker = bed.consume(work("jobs.build"), 10).await;
    let mut monitor = bed.consume(exclusive("monitor", "jobs.#"), 10).await;
    bed.say(&key("jobs.build"), "job").await.expect("bound");
    assert_eq!(take(&mut worker).await, "job");
    assert_eq!(take(&mut monitor).await, "job");
}
