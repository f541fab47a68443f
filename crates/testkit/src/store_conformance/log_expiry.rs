//! Expired and closed logs.

use std::time::Duration;

use bytes::Bytes;
use rockbot_store::{Appended, StoreError};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, log_name, prefix},
};

const MINUTE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);

async fn append(fixture: &StoreFixture, name: &str, at: u64, ttl: Option<Duration>) {
    let appended = fixture.append_with_ttl(name, at, &["x"], ttl).await;
    assert_eq!(appended.map(Appended::number), Ok(Ok(at + 1)));
}

async fn sweep(fixture: &StoreFixture, limit: usize) -> u64 {
    within_timeout("a sweep", fixture.local_log.sweep(limit)).await.expect("swept")
}

pub async fn log_expires_after_its_last_append(fixture: StoreFixture) {
    append(&fixture, "a/b", 1, Some(MINUTE)).await;
    fixture.clock.advance(MINUTE / 2);
    append(&fixture, "a/b", 2, Some(MINUTE)).await;
    fixture.clock.advance(MINUTE - MILLISECOND);
    assert_eq!(fixture.log_entries("a/b").await.len(), 2);
    fixture.clock.advance(MILLISECOND);
    assert_eq!(fixture.log_state("a/b").await, None);
    assert!(fixture.log_entries("a/b").await.is_empty());
    let listed = within_timeout("a page", fixture.remote_log.logs(&prefix("a"), None, 9)).await;
    assert_eq!(listed, Ok(Vec::new()));
    let name = log_name("a/b");
    assert_eq!(within_timeout("truncated", fixture.local_log.truncate(&name, 2)).await, Ok(0));
    assert_eq!(within_timeout("deleted", fixture.local_log.delete(&name)).await, Ok(false));
}

pub async fn expired_log_starts_again(fixture: StoreFixture) {
    append(&fixture, "a", 1, Some(MINUTE)).await;
    append(&fixture, "a", 2, Some(MINUTE)).await;
    fixture.clock.advance(MINUTE);
    assert_eq!(fixture.append("a", 3, &["stale"]).await.number(), Err(1));
    assert_eq!(fixture.append("a", 1, &["new"]).await.number(), Ok(2));
    assert_eq!(fixture.log_entries("a").await, [(1, "new".to_owned())]);
    assert_eq!(fixture.log_state("a").await.map(|state| state.bytes), Some(3));
    assert_eq!(sweep(&fixture, 100).await, 0);
}

pub async fn append_replaces_time_to_live(fixture: StoreFixture) {
    append(&fixture, "a", 1, Some(MINUTE)).await;
    append(&fixture, "a", 2, None).await;
    append(&fixture, "b", 1, None).await;
    append(&fixture, "b", 2, Some(MINUTE)).await;
    append(&fixture, "c", 1, Some(Duration::MAX)).await;
    fixture.clock.advance(MINUTE);
    assert!(fixture.log_state("a").await.is_some());
    assert_eq!(fixture.log_state("b").await, None);
    assert!(fixture.log_state("c").await.is_some());
}

pub async fn sweep_removes_only_expired_logs(fixture: StoreFixture) {
    append(&fixture, "a/1", 1, Some(MINUTE)).await;
    append(&fixture, "a/1", 2, Some(MINUTE)).await;
    append(&fixture, "a/2", 1, Some(2 * MINUTE)).await;
    append(&fixture, "a/3", 1, None).await;
    assert_eq!(sweep(&fixture, 100).await, 0);
    fixture.clock.advance(MINUTE);
    assert_eq!(sweep(&fixture, 100).await, 3, "two entries and their log");
    assert_eq!(sweep(&fixture, 100).await, 0);
    for name in ["a/2", "a/3"] {
        assert_eq!(fixture.log_entries(name).await.len(), 1);
    }
}

pub async fn sweep_respects_its_limit(fixture: StoreFixture) {
    for name in ["a", "b"] {
        append(&fixture, name, 1, Some(MINUTE)).await;
        append(&fixture, name, 2, Some(MINUTE)).await;
    }
    fixture.clock.advance(MINUTE);
    assert_eq!(sweep(&fixture, 0).await, 0);
    let mut removed = 0;
    loop {
        let swept = sweep(&fixture, 1).await;
        if swept == 0 {
            break;
        }
        assert_eq!(swept, 1);
        removed += swept;
        assert_eq!(fixture.log_state("a").await, None);
    }
    assert_eq!(removed, 6, "four entries and two logs");
}

pub async fn closed_log_rejects_operations(fixture: StoreFixture) {
    fixture.append("a", 1, &["one"]).await;
    within_timeout("close", fixture.local_log.close()).await;
    within_timeout("close", fixture.local_log.close()).await;
    let (log, a) = (&fixture.local_log, log_name("a"));
    let entries = vec![Bytes::from_static(b"two")];
    let rejected = within_timeout("an error", log.append(&a, 2.into(), entries, None)).await;
    assert_eq!(rejected, Err(StoreError::Closed));
    let checked = within_timeout("an error", log.append(&a, 2.into(), Vec::new(), None)).await;
    assert_eq!(checked, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", log.read(&a, 1, 1)).await, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", log.state(&a)).await, Err(StoreError::Closed));
    let listed = within_timeout("an error", log.logs(&prefix("a"), None, 1)).await;
    assert_eq!(listed, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", log.truncate(&a, 1)).await, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", log.delete(&a)).await, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", log.sweep(1)).await, Err(StoreError::Closed));
}
