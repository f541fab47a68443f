//! Logs that outlive a process.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, poll};
use rockbot_store::{Appended, LogPosition, StoreError};
use tokio::task::JoinSet;

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, log_name},
};

const MINUTE: Duration = Duration::from_secs(60);

pub async fn logs_survive_reopening(fixture: StoreFixture) {
    fixture.append("a", 1, &["one", "two"]).await;
    let temporary = fixture.append_with_ttl("b", 1, &["one"], Some(MINUTE)).await;
    assert_eq!(temporary.map(Appended::number), Ok(Ok(2)));
    let before = fixture.log_state("a").await;
    within_timeout("close", fixture.local_log.close()).await;
    within_timeout("close", fixture.remote_log.close()).await;
    let log = fixture.open_stores().await.log;
    let (a, b) = (log_name("a"), log_name("b"));
    assert_eq!(log.state(&a).await, Ok(before));
    assert_eq!(log.read(&a, 2, 9).await.expect("read")[0].value, "two");
    let entry = || vec![Bytes::from_static(b"three")];
    for (at, expected) in [(2, Err(3)), (3, Ok(4))] {
        let appended = log.append(&a, at.into(), entry(), None).await;
        assert_eq!(appended.map(Appended::number), Ok(expected));
    }
    assert!(log.state(&b).await.expect("read").is_some());
    fixture.clock.advance(MINUTE);
    assert_eq!(log.state(&b).await, Ok(None));
    log.close().await;
}

pub async fn append_during_close_is_complete_or_rejected(fixture: StoreFixture) {
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let log = Arc::clone(&fixture.local_log);
        let name = format!("closing/{number}");
        tasks.spawn(async move {
            let entries = vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")];
            let outcome = log.append(&log_name(&name), LogPosition::START, entries, None).await;
            (name, outcome)
        });
    }
    within_timeout("close", fixture.local_log.close()).await;
    for (name, outcome) in within_timeout("all results", tasks.join_all()).await {
        let entries = fixture.log_entries(&name).await.len();
        match outcome {
            Ok(Appended::Done { .. }) => assert_eq!(entries, 2, "{name} was appended"),
            Err(StoreError::Closed) => assert_eq!(entries, 0, "{name} was rejected"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

pub async fn dropped_append_is_atomic(fixture: StoreFixture) {
    let name = log_name("a");
    for _ in 0..20 {
        let at = fixture.log_state("a").await.map_or(LogPosition::START, |state| state.end());
        let entries = vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let mut dropped = fixture.local_log.append(&name, at, entries, None).boxed();
        let _ = poll!(&mut dropped);
        drop(dropped);
        assert_eq!(fixture.log_entries("a").await.len() % 2, 0);
    }
    // The log remains usable.
    let mut at = 1;
    while let Err(next) = fixture.append("a", at, &["three", "four"]).await.number() {
        at = next;
    }
    assert_eq!(fixture.log_entries("a").await.len() % 2, 0);
}
