//! Conformance and limits of the in-memory store.

use std::time::Duration;

use bytes::Bytes;
use rockbot_store::{
    Appended, Clock, Log, ManualClock, MemoryLimits, MemoryLog, MemoryStore, Store, StoreError,
    Write,
};
use rockbot_testkit::store_fixture::{expect_written, key, log_name};

rockbot_testkit::store_conformance_tests!(rockbot_testkit::StoreFixture::memory);
rockbot_testkit::log_conformance_tests!(rockbot_testkit::StoreFixture::memory);

#[tokio::test]
async fn full_store_rejects_writes_until_expiry() {
    let clock = ManualClock::new();
    let limits = MemoryLimits { entries: 2, bytes: 100 };
    let store = MemoryStore::with_limits(Clock::from(&clock), limits);
    let minute = Duration::from_secs(60);
    expect_written(store.write(Write::new(key("a"), "1").with_ttl(minute)).await);
    expect_written(store.write(Write::new(key("b"), "2")).await);
    let full = store.write(Write::new(key("c"), "3")).await;
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    expect_written(store.write(Write::new(key("b"), "a replacement counts once")).await);
    clock.advance(minute);
    expect_written(store.write(Write::new(key("c"), "3")).await);
    let large = store.write(Write::new(key("c"), vec![0; 100])).await;
    assert!(matches!(large, Err(StoreError::Full { .. })), "{large:?}");
}

#[tokio::test]
async fn full_log_rejects_appends_until_expiry() {
    let clock = ManualClock::new();
    let limits = MemoryLimits { entries: 3, bytes: 20 };
    let log = MemoryLog::with_limits(Clock::from(&clock), limits);
    let minute = Duration::from_secs(60);
    let append = async |name, at: u64, sizes: &[usize], ttl| {
        let entries = sizes.iter().map(|size| Bytes::from(vec![0; *size])).collect();
        log.append(&log_name(name), at.into(), entries, ttl).await.map(Appended::number)
    };
    assert_eq!(append("a", 1, &[1, 1], Some(minute)).await, Ok(Ok(3)));
    assert_eq!(append("b", 1, &[15], None).await, Ok(Ok(2)));
    let entries = append("b", 2, &[0], None).await;
    assert!(matches!(entries, Err(StoreError::Full { .. })), "{entries:?}");
    clock.advance(minute);
    assert_eq!(append("b", 2, &[4], None).await, Ok(Ok(3)));
    let bytes = append("b", 3, &[1], None).await;
    assert!(matches!(bytes, Err(StoreError::Full { .. })), "{bytes:?}");
    assert_eq!(log.truncate(&log_name("b"), 2).await, Ok(1));
    assert_eq!(append("b", 3, &[15], None).await, Ok(Ok(4)));
}
