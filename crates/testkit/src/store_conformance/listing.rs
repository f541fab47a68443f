//! Listing of entries.

use rockbot_store::{Expected, Key, MAX_VALUE_BYTES, Write};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, expect_written, key, name_of, prefix},
};

async fn page(fixture: &StoreFixture, below: &str, after: Option<&Key>, limit: usize) -> Vec<Key> {
    let page = within_timeout("a page", fixture.remote.list(&prefix(below), after, limit)).await;
    page.expect("listed").into_iter().map(|(key, _)| key).collect()
}

fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().map(name_of).collect()
}

pub async fn prefix_matches_whole_segments(fixture: StoreFixture) {
    for name in ["memory/a", "memory/a/x", "memory/a/x/y", "memory/ab", "memory/a-b", "memory"] {
        fixture.put(name, "").await;
    }
    assert_eq!(fixture.names("memory/a").await, ["memory/a/x", "memory/a/x/y"]);
    assert!(fixture.names("memory/b").await.is_empty());
}

pub async fn prefix_has_no_wildcards(fixture: StoreFixture) {
    for name in ["a%/1", "ab/2", "a_/3", "a*/4", "a\\/5", "%/6"] {
        fixture.put(name, "").await;
    }
    for (below, name) in [("a%", "a%/1"), ("a_", "a_/3"), ("a*", "a*/4"), ("%", "%/6")] {
        assert_eq!(fixture.names(below).await, [name]);
    }
}

pub async fn list_is_in_byte_order(fixture: StoreFixture) {
    let mut keys: Vec<Key> =
        ["b", "B", "a", "A", "_", "-", ".", "1", "10", "9", "ä", "Z", "z", "a b"]
            .iter()
            .map(|name| Key::new(["order", name]).expect("a key"))
            .collect();
    for key in &keys {
        expect_written(
            within_timeout("a write", fixture.local.write(Write::new(key.clone(), ""))).await,
        );
    }
    keys.sort_by(|one, other| one.as_str().as_bytes().cmp(other.as_str().as_bytes()));
    assert_eq!(page(&fixture, "order", None, 100).await, keys);
}

pub async fn pages_have_no_gaps_or_repeats(fixture: StoreFixture) {
    let expected: Vec<String> = (10..33).map(|number| format!("pages/{number}")).collect();
    for name in expected.iter().rev() {
        fixture.put(name, "").await;
    }
    fixture.put("pagesx/1", "").await;
    let mut found: Vec<Key> = Vec::new();
    loop {
        let next = page(&fixture, "pages", found.last(), 5).await;
        if next.is_empty() {
            break;
        }
        assert!(next.len() <= 5);
        found.extend(next);
    }
    assert_eq!(names(&found), expected);
}

pub async fn page_size_is_bounded(fixture: StoreFixture) {
    for name in ["large/1", "large/2", "large/3"] {
        let write = Write::new(key(name), vec![0; MAX_VALUE_BYTES]);
        expect_written(within_timeout("a write", fixture.local.write(write)).await);
    }
    let first = page(&fixture, "large", None, 10).await;
    assert_eq!(names(&first), ["large/1", "large/2"]);
    let second = page(&fixture, "large", first.last(), 10).await;
    assert_eq!(names(&second), ["large/3"]);
    assert!(page(&fixture, "large", second.last(), 10).await.is_empty());
}

pub async fn list_continues_after_removed_key(fixture: StoreFixture) {
    for name in ["a/1", "a/2", "a/3"] {
        fixture.put(name, "").await;
    }
    assert!(fixture.remove("a/2", Expected::Anything).await);
    assert_eq!(names(&page(&fixture, "a", Some(&key("a/2")), 10).await), ["a/3"]);
    assert_eq!(names(&page(&fixture, "a", Some(&key("Z")), 10).await), ["a/1", "a/3"]);
    assert!(page(&fixture, "a", Some(&key("b")), 10).await.is_empty());
}

pub async fn limit_zero_lists_nothing(fixture: StoreFixture) {
    fixture.put("a/1", "").await;
    assert!(page(&fixture, "a", None, 0).await.is_empty());
}
