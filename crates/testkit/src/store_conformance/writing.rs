//! One write after the other.

use rockbot_store::{Expected, MAX_VALUE_BYTES, StoreError, Write};

use crate::{
    bed::soon,
    store_bed::{StoreBed, conflict, done, key},
};

pub async fn a_value_is_read_as_it_was_written(bed: StoreBed) {
    let version = bed.put("a/b", "value").await;
    let entry = bed.get("a/b").await.expect("it is there");
    assert_eq!(entry.value, "value");
    assert_eq!(entry.version, version);
    assert_eq!(entry.expires_at, None);
}

pub async fn a_value_of_any_bytes_survives(bed: StoreBed) {
    let every_byte: Vec<u8> = (0..=255).collect();
    for (name, value) in [("bytes", every_byte), ("nothing", Vec::new())] {
        let outcome = soon("a write", bed.here.write(Write::new(key(name), value.clone()))).await;
        done(outcome);
        assert_eq!(bed.value(name).await.expect("it is there"), value);
    }
}

pub async fn an_absent_key_has_no_entry(bed: StoreBed) {
    bed.put("a", "near").await;
    assert_eq!(bed.get("a/b").await, None);
    assert_eq!(bed.get("b").await, None);
}

pub async fn a_later_write_replaces_an_earlier_one(bed: StoreBed) {
    let first = bed.put("a", "one").await;
    let second = bed.put("a", "two").await;
    assert!(second > first);
    assert_eq!(bed.value("a").await.expect("it is there"), "two");
}

pub async fn a_write_that_expects_nothing_is_refused_by_an_entry(bed: StoreBed) {
    let first = done(bed.write("a", "one", Expected::Absent).await);
    let present = conflict(bed.write("a", "two", Expected::Absent).await).expect("what is there");
    assert_eq!((present.version, &present.value[..]), (first, &b"one"[..]));
    assert_eq!(bed.value("a").await.expect("it is there"), "one");
}

pub async fn a_write_that_expects_a_version_is_made_on_that_version_only(bed: StoreBed) {
    let first = bed.put("a", "one").await;
    let second = done(bed.write("a", "two", Expected::Version(first)).await);
    let present = conflict(bed.write("a", "three", Expected::Version(first)).await);
    assert_eq!(present.expect("what is there").version, second);
    assert_eq!(bed.value("a").await.expect("it is there"), "two");
}

pub async fn a_write_that_expects_a_version_finds_an_absent_key(bed: StoreBed) {
    let version = bed.put("a", "one").await;
    assert_eq!(conflict(bed.write("b", "two", Expected::Version(version)).await), None);
    assert_eq!(bed.get("b").await, None);
}

pub async fn versions_grow_from_write_to_write_on_any_key(bed: StoreBed) {
    let mut last = bed.put("a", "").await;
    assert!(last.number() >= 1);
    for name in ["b", "a", "c", "a", "b"] {
        let version = bed.put(name, "").await;
        assert!(version > last, "{name}: {version} after {last}");
        last = version;
    }
}

pub async fn a_value_at_the_limit_is_kept_and_one_byte_more_is_refused(bed: StoreBed) {
    let write = |bytes| bed.here.write(Write::new(key("a"), vec![7; bytes]));
    done(soon("a write", write(MAX_VALUE_BYTES)).await);
    let refused = soon("a refusal", write(MAX_VALUE_BYTES + 1)).await;
    let (bytes, limit) = (MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES);
    assert_eq!(refused, Err(StoreError::TooLarge { bytes, limit }));
    let kept = bed.value("a").await.expect("it is there");
    assert!(kept.len() == MAX_VALUE_BYTES && kept.iter().all(|byte| *byte == 7));
}
