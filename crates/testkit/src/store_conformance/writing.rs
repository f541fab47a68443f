//! Sequential writes.

use rockbot_store::{Expected, MAX_VALUE_BYTES, StoreError, Write};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, expect_conflict, expect_written, key},
};

pub async fn value_is_read_as_written(fixture: StoreFixture) {
    let version = fixture.put("a/b", "value").await;
    let entry = fixture.get("a/b").await.expect("an entry");
    assert_eq!(entry.value, "value");
    assert_eq!(entry.version, version);
    assert_eq!(entry.expires_at, None);
}

pub async fn value_may_hold_any_bytes(fixture: StoreFixture) {
    let every_byte: Vec<u8> = (0..=255).collect();
    for (name, value) in [("bytes", every_byte), ("nothing", Vec::new())] {
        let outcome =
            within_timeout("a write", fixture.local.write(Write::new(key(name), value.clone())))
                .await;
        expect_written(outcome);
        assert_eq!(fixture.value(name).await.expect("an entry"), value);
    }
}

pub async fn absent_key_has_no_entry(fixture: StoreFixture) {
    fixture.put("a", "near").await;
    assert_eq!(fixture.get("a/b").await, None);
    assert_eq!(fixture.get("b").await, None);
}

pub async fn later_write_replaces_earlier_one(fixture: StoreFixture) {
    let first = fixture.put("a", "one").await;
    let second = fixture.put("a", "two").await;
    assert!(second > first);
    assert_eq!(fixture.value("a").await.expect("an entry"), "two");
}

pub async fn write_expecting_absent_conflicts_with_entry(fixture: StoreFixture) {
    let first = expect_written(fixture.write("a", "one", Expected::Absent).await);
    let present = expect_conflict(fixture.write("a", "two", Expected::Absent).await);
    let present = present.expect("the present entry");
    assert_eq!((present.version, &present.value[..]), (first, &b"one"[..]));
    assert_eq!(fixture.value("a").await.expect("an entry"), "one");
}

pub async fn write_expecting_version_conflicts_with_another(fixture: StoreFixture) {
    let first = fixture.put("a", "one").await;
    let second = expect_written(fixture.write("a", "two", Expected::Version(first)).await);
    let present = expect_conflict(fixture.write("a", "three", Expected::Version(first)).await);
    assert_eq!(present.expect("the present entry").version, second);
    assert_eq!(fixture.value("a").await.expect("an entry"), "two");
}

pub async fn write_expecting_version_conflicts_with_absence(fixture: StoreFixture) {
    let version = fixture.put("a", "one").await;
    assert_eq!(expect_conflict(fixture.write("b", "two", Expected::Version(version)).await), None);
    assert_eq!(fixture.get("b").await, None);
}

pub async fn versions_grow_across_keys(fixture: StoreFixture) {
    let mut last = fixture.put("a", "").await;
    assert!(last.number() >= 1);
    for name in ["b", "a", "c", "a", "b"] {
        let version = fixture.put(name, "").await;
        assert!(version > last, "{name}: {version} after {last}");
        last = version;
    }
}

pub async fn value_size_is_limited(fixture: StoreFixture) {
    let write = |bytes| fixture.local.write(Write::new(key("a"), vec![7; bytes]));
    expect_written(within_timeout("a write", write(MAX_VALUE_BYTES)).await);
    let rejected = within_timeout("an error", write(MAX_VALUE_BYTES + 1)).await;
    let (bytes, limit) = (MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES);
    assert_eq!(rejected, Err(StoreError::TooLarge { bytes, limit }));
    let value = fixture.value("a").await.expect("an entry");
    assert!(value.len() == MAX_VALUE_BYTES && value.iter().all(|byte| *byte == 7));
}
