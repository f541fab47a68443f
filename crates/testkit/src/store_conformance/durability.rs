//! Data that outlives a process.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, poll};
use rockbot_store::{StoreError, Write, Written};
use tokio::task::JoinSet;

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, expect_written, key},
};

const MINUTE: Duration = Duration::from_secs(60);

async fn close_both(fixture: &StoreFixture) {
    within_timeout("close", fixture.local.close()).await;
    within_timeout("close", fixture.remote.close()).await;
}

pub async fn entries_survive_reopening(fixture: StoreFixture) {
    let version = fixture.put("a", "permanent").await;
    fixture.put_with_ttl("b", "temporary", MINUTE).await;
    close_both(&fixture).await;
    let store = fixture.open().await;
    let entry = store.get(&key("a")).await.expect("read").expect("an entry");
    assert_eq!((entry.version, &entry.value[..]), (version, &b"permanent"[..]));
    assert!(store.get(&key("b")).await.expect("read").is_some());
    fixture.clock.advance(MINUTE);
    assert_eq!(store.get(&key("b")).await, Ok(None));
    store.close().await;
}

pub async fn versions_grow_after_reopening(fixture: StoreFixture) {
    let before = fixture.put("a", "").await;
    fixture.remove("a", rockbot_store::Expected::Anything).await;
    close_both(&fixture).await;
    let store = fixture.open().await;
    assert!(expect_written(store.write(Write::new(key("a"), "")).await) > before);
    store.close().await;
}

pub async fn write_during_close_is_complete_or_rejected(fixture: StoreFixture) {
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&fixture.local);
        let key = key(&format!("closing/{number}"));
        tasks.spawn(async move {
            let outcome = store.write(Write::new(key.clone(), "")).await;
            (key, outcome)
        });
    }
    within_timeout("close", fixture.local.close()).await;
    for (key, outcome) in within_timeout("all results", tasks.join_all()).await {
        let present =
            within_timeout("a read", fixture.remote.get(&key)).await.expect("read").is_some();
        match outcome {
            Ok(Written::Done(_)) => assert!(present, "{key} was written"),
            Err(StoreError::Closed) => assert!(!present, "{key} was rejected"),
            other => panic!("{key}: {other:?}"),
        }
    }
}

pub async fn writes_of_two_processes_are_all_kept(fixture: StoreFixture) {
    const EACH: usize = 100;
    let mut tasks = JoinSet::new();
    for number in 0..2 * EACH {
        let store = Arc::clone(if number % 2 == 0 { &fixture.local } else { &fixture.remote });
        let write = Write::new(key(&format!("both/{number}")), "");
        tasks.spawn(async move { expect_written(store.write(write).await) });
    }
    let mut versions = within_timeout("all writes", tasks.join_all()).await;
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), 2 * EACH, "versions are unique");
    assert_eq!(fixture.names("both").await.len(), 2 * EACH);
}

pub async fn dropped_write_is_atomic(fixture: StoreFixture) {
    for _ in 0..20 {
        let mut dropped = fixture.local.write(Write::new(key("a"), "whole")).boxed();
        let _ = poll!(&mut dropped);
        drop(dropped);
        let value = fixture.value("a").await;
        assert!(value.is_none_or(|value| value == "whole"));
    }
    // The store remains usable.
    fixture.put("a", "after").await;
    assert_eq!(fixture.value("b").await, None);
}
