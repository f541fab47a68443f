//! Expired entries.

use std::time::Duration;

use rockbot_store::Expected;

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, expect_conflict, expect_written},
};

const MINUTE: Duration = Duration::from_secs(60);
const MILLISECOND: Duration = Duration::from_millis(1);

async fn sweep(fixture: &StoreFixture, limit: usize) -> u64 {
    within_timeout("a sweep", fixture.local.sweep(limit)).await.expect("swept")
}

pub async fn entry_expires_at_its_time(fixture: StoreFixture) {
    let end = fixture.clock.now().after(MINUTE);
    fixture.put_with_ttl("a", "value", MINUTE).await;
    assert_eq!(fixture.get("a").await.expect("an entry").expires_at, Some(end));
    fixture.clock.advance(MINUTE - MILLISECOND);
    assert!(fixture.get("a").await.is_some());
    fixture.clock.advance(MILLISECOND);
    assert_eq!(fixture.get("a").await, None);
}

pub async fn expired_entry_is_not_listed(fixture: StoreFixture) {
    fixture.put_with_ttl("a/short", "", MINUTE).await;
    fixture.put_with_ttl("a/long", "", 2 * MINUTE).await;
    fixture.put("a/ever", "").await;
    assert_eq!(fixture.names("a").await, ["a/ever", "a/long", "a/short"]);
    fixture.clock.advance(MINUTE);
    assert_eq!(fixture.names("a").await, ["a/ever", "a/long"]);
}

pub async fn expired_entry_counts_as_absent(fixture: StoreFixture) {
    let first = fixture.put_with_ttl("a", "one", MINUTE).await;
    assert!(expect_conflict(fixture.write("a", "two", Expected::Absent).await).is_some());
    fixture.clock.advance(MINUTE);
    assert!(expect_written(fixture.write("a", "two", Expected::Absent).await) > first);
    assert_eq!(fixture.value("a").await.expect("an entry"), "two");
}

pub async fn expired_version_does_not_match(fixture: StoreFixture) {
    let version = fixture.put_with_ttl("a", "one", MINUTE).await;
    fixture.clock.advance(MINUTE);
    assert_eq!(expect_conflict(fixture.write("a", "two", Expected::Version(version)).await), None);
    assert_eq!(fixture.get("a").await, None);
}

pub async fn expired_entry_cannot_be_removed(fixture: StoreFixture) {
    let version = fixture.put_with_ttl("a", "", MINUTE).await;
    fixture.clock.advance(MINUTE);
    assert!(!fixture.remove("a", Expected::Version(version)).await);
    assert!(!fixture.remove("a", Expected::Anything).await);
}

pub async fn write_replaces_time_to_live(fixture: StoreFixture) {
    fixture.put_with_ttl("a", "one", MINUTE).await;
    fixture.put("a", "two").await;
    fixture.put("b", "one").await;
    fixture.put_with_ttl("b", "two", MINUTE).await;
    fixture.clock.advance(MINUTE);
    assert_eq!(fixture.value("a").await.expect("an entry"), "two");
    assert_eq!(fixture.get("b").await, None);
}

pub async fn time_to_live_may_exceed_calendar(fixture: StoreFixture) {
    fixture.put_with_ttl("a", "", Duration::MAX).await;
    fixture.clock.advance(Duration::from_secs(1_000 * 365 * 24 * 3600));
    assert!(fixture.get("a").await.is_some());
    fixture.put_with_ttl("b", "", Duration::ZERO).await;
    assert_eq!(fixture.get("b").await, None);
}

pub async fn sweep_removes_only_expired_entries(fixture: StoreFixture) {
    fixture.put_with_ttl("a/1", "", MINUTE).await;
    fixture.put_with_ttl("a/2", "", MINUTE).await;
    fixture.put_with_ttl("a/3", "", 2 * MINUTE).await;
    fixture.put("a/4", "").await;
    assert_eq!(sweep(&fixture, 100).await, 0);
    fixture.clock.advance(MINUTE);
    assert_eq!(sweep(&fixture, 100).await, 2);
    assert_eq!(sweep(&fixture, 100).await, 0);
    assert_eq!(fixture.names("a").await, ["a/3", "a/4"]);
}

pub async fn sweep_respects_its_limit(fixture: StoreFixture) {
    for name in ["a", "b", "c"] {
        fixture.put_with_ttl(name, "", MINUTE).await;
    }
    fixture.clock.advance(MINUTE);
    let mut swept = Vec::new();
    for limit in [0, 2, 2, 2] {
        swept.push(sweep(&fixture, limit).await);
    }
    assert_eq!(swept, [0, 2, 1, 0]);
}

pub async fn versions_grow_after_sweep(fixture: StoreFixture) {
    let first = fixture.put_with_ttl("a", "", MINUTE).await;
    fixture.clock.advance(MINUTE);
    assert_eq!(sweep(&fixture, 100).await, 1);
    assert!(expect_written(fixture.write("a", "", Expected::Absent).await) > first);
}

pub async fn store_reports_its_clock(fixture: StoreFixture) {
    fixture.clock.advance(MINUTE);
    assert_eq!(within_timeout("the time", fixture.local.now()).await, Ok(fixture.clock.now()));
    assert_eq!(within_timeout("the time", fixture.remote.now()).await, Ok(fixture.clock.now()));
}
