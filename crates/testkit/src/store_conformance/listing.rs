//! Pages of entries.

use rockbot_store::{Expected, Key, MAX_VALUE_BYTES, Write};

use crate::{
    bed::soon,
    store_bed::{StoreBed, done, key, name_of, prefix},
};

async fn page(bed: &StoreBed, below: &str, after: Option<&Key>, limit: usize) -> Vec<Key> {
    let page = soon("a page", bed.there.list(&prefix(below), after, limit)).await;
    page.expect("listed").into_iter().map(|(key, _)| key).collect()
}

fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().map(name_of).collect()
}

pub async fn a_prefix_lists_whole_segments_only(bed: StoreBed) {
    for name in ["memory/a", "memory/a/x", "memory/a/x/y", "memory/ab", "memory/a-b", "memory"] {
        bed.put(name, "").await;
    }
    assert_eq!(bed.names("memory/a").await, ["memory/a/x", "memory/a/x/y"]);
    assert!(bed.names("memory/b").await.is_empty());
}

pub async fn a_prefix_takes_no_character_for_a_wildcard(bed: StoreBed) {
    for name in ["a%/1", "ab/2", "a_/3", "a*/4", "a\\/5", "%/6"] {
        bed.put(name, "").await;
    }
    for (below, name) in [("a%", "a%/1"), ("a_", "a_/3"), ("a*", "a*/4"), ("%", "%/6")] {
        assert_eq!(bed.names(below).await, [name]);
    }
}

pub async fn a_list_is_in_the_order_of_the_bytes(bed: StoreBed) {
    let mut keys: Vec<Key> =
        ["b", "B", "a", "A", "_", "-", ".", "1", "10", "9", "ä", "Z", "z", "a b"]
            .iter()
            .map(|name| Key::new(["order", name]).expect("a key"))
            .collect();
    for key in &keys {
        done(soon("a write", bed.here.write(Write::new(key.clone(), ""))).await);
    }
    keys.sort_by(|one, other| one.as_str().as_bytes().cmp(other.as_str().as_bytes()));
    assert_eq!(page(&bed, "order", None, 100).await, keys);
}

pub async fn pages_follow_each_other_without_gaps_or_repeats(bed: StoreBed) {
    let expected: Vec<String> = (10..33).map(|number| format!("pages/{number}")).collect();
    for name in expected.iter().rev() {
        bed.put(name, "").await;
    }
    bed.put("pagesx/1", "").await;
    let mut found: Vec<Key> = Vec::new();
    loop {
        let next = page(&bed, "pages", found.last(), 5).await;
        if next.is_empty() {
            break;
        }
        assert!(next.len() <= 5);
        found.extend(next);
    }
    assert_eq!(names(&found), expected);
}

pub async fn a_page_ends_when_its_values_are_large(bed: StoreBed) {
    for name in ["large/1", "large/2", "large/3"] {
        let write = Write::new(key(name), vec![0; MAX_VALUE_BYTES]);
        done(soon("a write", bed.here.write(write)).await);
    }
    let first = page(&bed, "large", None, 10).await;
    assert_eq!(names(&first), ["large/1", "large/2"]);
    let second = page(&bed, "large", first.last(), 10).await;
    assert_eq!(names(&second), ["large/3"]);
    assert!(page(&bed, "large", second.last(), 10).await.is_empty());
}

pub async fn a_list_begins_after_a_key_that_is_gone(bed: StoreBed) {
    for name in ["a/1", "a/2", "a/3"] {
        bed.put(name, "").await;
    }
    assert!(bed.remove("a/2", Expected::Anything).await);
    assert_eq!(names(&page(&bed, "a", Some(&key("a/2")), 10).await), ["a/3"]);
    assert_eq!(names(&page(&bed, "a", Some(&key("Z")), 10).await), ["a/1", "a/3"]);
    assert!(page(&bed, "a", Some(&key("b")), 10).await.is_empty());
}

pub async fn a_limit_of_nothing_lists_nothing(bed: StoreBed) {
    bed.put("a/1", "").await;
    assert!(page(&bed, "a", None, 0).await.is_empty());
}
