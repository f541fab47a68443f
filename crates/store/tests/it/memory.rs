//! Conformance and limits of the in-memory store.

use std::time::Duration;

use rockbot_store::{Clock, ManualClock, MemoryLimits, MemoryStore, Store, StoreError, Write};
use rockbot_testkit::store_fixture::{expect_written, key};

rockbot_testkit::store_conformance_tests!(rockbot_testkit::StoreFixture::memory);

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
