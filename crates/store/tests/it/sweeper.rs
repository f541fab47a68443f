//! The sweeper.

use std::{sync::Arc, time::Duration};

use rockbot_store::{Clock, ManualClock, MemoryStore, Store, Sweeper, Write};
use rockbot_testkit::{
    fixture::within_timeout,
    store_fixture::{expect_written, key},
};

const MINUTE: Duration = Duration::from_secs(60);

async fn store_with_expired_entries(clock: &ManualClock, entries: usize) -> MemoryStore {
    let store = MemoryStore::new(Clock::from(clock));
    for number in 0..entries {
        let write = Write::new(key(&number.to_string()), "").with_ttl(MINUTE);
        expect_written(store.write(write).await);
    }
    clock.advance(MINUTE);
    store
}

#[tokio::test(start_paused = true)]
async fn sweeper_removes_all_expired_entries() {
    let clock = ManualClock::new();
    let store = store_with_expired_entries(&clock, 1200).await;
    let sweeper = Sweeper::start(Arc::new(store.clone()), 10 * MINUTE);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(store.sweep(usize::MAX).await, Ok(0));
    expect_written(store.write(Write::new(key("late"), "").with_ttl(MINUTE)).await);
    clock.advance(MINUTE);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(store.sweep(usize::MAX).await, Ok(0));
    within_timeout("the sweeper ends", sweeper.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn stopped_sweeper_removes_nothing() {
    let clock = ManualClock::new();
    let store = store_with_expired_entries(&clock, 0).await;
    let start = || Sweeper::start(Arc::new(store.clone()), MINUTE);
    within_timeout("the sweeper ends", start().stop()).await;
    drop(start());
    expect_written(store.write(Write::new(key("a"), "").with_ttl(MINUTE)).await);
    clock.advance(MINUTE);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(store.sweep(usize::MAX).await, Ok(1));
}
