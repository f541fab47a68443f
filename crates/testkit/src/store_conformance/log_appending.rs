//! Sequential appends.

use bytes::Bytes;
use rockbot_store::{
    Appended, Expected, LogPosition, MAX_APPEND_BYTES, MAX_APPEND_ENTRIES, MAX_LOG_ENTRY_BYTES,
    StoreError,
};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, expect_written, log_name},
};

pub async fn entries_are_read_as_appended(fixture: StoreFixture) {
    let every_byte: Bytes = (0..=255).collect();
    let name = log_name("a/b");
    let entries = vec![every_byte.clone(), Bytes::new()];
    let appended = fixture.local_log.append(&name, LogPosition::START, entries, None);
    let appended = within_timeout("an append", appended).await.expect("appended");
    assert_eq!(appended.number(), Ok(3));
    assert_eq!(fixture.append("a/b", 3, &["three"]).await.number(), Ok(4));
    let read = fixture.remote_log.read(&name, 1, 10);
    let page = within_timeout("a page", read).await.expect("read");
    let found: Vec<_> = page.iter().map(|entry| (entry.number, &entry.value[..])).collect();
    assert_eq!(found, [(1, &every_byte[..]), (2, b""), (3, b"three")]);
}

pub async fn append_at_another_number_conflicts(fixture: StoreFixture) {
    for at in [0, 2, u64::MAX] {
        assert_eq!(fixture.append("a", at, &["x"]).await.number(), Err(1));
    }
    assert_eq!(fixture.append("a", 1, &["one", "two"]).await.number(), Ok(3));
    for at in [0, 1, 2, 4, u64::MAX] {
        assert_eq!(fixture.append("a", at, &["x"]).await.number(), Err(3));
    }
    assert_eq!(fixture.append("a", 3, &["three"]).await.number(), Ok(4));
}

pub async fn conflicting_append_changes_nothing(fixture: StoreFixture) {
    fixture.append("a", 1, &["one", "two"]).await;
    let before = fixture.log_state("a").await;
    fixture.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(fixture.append("a", 2, &["other", "more"]).await.number(), Err(3));
    assert_eq!(fixture.append("b", 2, &["other"]).await.number(), Err(1));
    assert_eq!(fixture.log_state("a").await, before);
    assert_eq!(fixture.log_entries("a").await, [(1, "one".to_owned()), (2, "two".to_owned())]);
    assert_eq!(fixture.log_state("b").await, None);
}

pub async fn empty_append_checks_fence(fixture: StoreFixture) {
    assert_eq!(fixture.append("a", 1, &[]).await.number(), Ok(1));
    assert_eq!(fixture.log_state("a").await, None);
    fixture.append("a", 1, &["one"]).await;
    assert_eq!(fixture.append("a", 1, &[]).await.number(), Err(2));
    assert_eq!(fixture.append("a", 2, &[]).await.number(), Ok(2));
}

pub async fn append_size_is_limited(fixture: StoreFixture) {
    let name = log_name("a");
    let append = async |at: u64, entries: usize, bytes: usize| {
        let entries = vec![Bytes::from(vec![7; bytes]); entries];
        let appended = fixture.local_log.append(&name, at.into(), entries, None);
        within_timeout("an append", appended).await.map(Appended::number)
    };
    let too_large = |bytes, limit| Err(StoreError::TooLarge { bytes, limit });
    let (entry, most) = (MAX_LOG_ENTRY_BYTES, MAX_APPEND_ENTRIES);
    let full = MAX_APPEND_BYTES / entry;
    assert_eq!(append(1, 1, entry + 1).await, too_large(entry + 1, entry));
    assert_eq!(append(1, full + 1, entry).await, too_large((full + 1) * entry, MAX_APPEND_BYTES));
    let rejected = Err(StoreError::TooManyEntries { entries: most + 1, limit: most });
    assert_eq!(append(1, most + 1, 1).await, rejected);
    assert_eq!(fixture.log_state("a").await, None);
    assert_eq!(append(1, full, entry).await, Ok(Ok(full as u64 + 1)));
    assert_eq!(append(full as u64 + 1, most, 1).await, Ok(Ok((full + most) as u64 + 1)));
}

pub async fn state_counts_entries_and_bytes(fixture: StoreFixture) {
    fixture.append("a", 1, &["1", "22"]).await;
    fixture.clock.advance(std::time::Duration::from_secs(1));
    fixture.append("a", 3, &["333"]).await;
    let state = fixture.log_state("a").await.expect("a log");
    assert_eq!(state.name, log_name("a"));
    assert_eq!((state.first, state.next, state.entries, state.bytes), (1, 4, 3, 6));
    assert_eq!(state.appended_at, fixture.clock.now());
}

pub async fn logs_are_independent(fixture: StoreFixture) {
    for name in ["a", "a/b", "b"] {
        assert_eq!(fixture.append(name, 1, &["one"]).await.number(), Ok(2));
    }
    assert_eq!(fixture.append("a", 2, &["two"]).await.number(), Ok(3));
    assert_eq!(fixture.append("b", 3, &["three"]).await.number(), Err(2));
    assert_eq!(fixture.log_entries("a/b").await, [(1, "one".to_owned())]);
}

pub async fn log_and_entry_may_share_name(fixture: StoreFixture) {
    fixture.put("a", "value").await;
    fixture.append("a", 1, &["one"]).await;
    expect_written(fixture.write("a", "other", Expected::Anything).await);
    assert_eq!(fixture.log_entries("a").await, [(1, "one".to_owned())]);
    assert_eq!(fixture.names("a").await, Vec::<String>::new());
}
