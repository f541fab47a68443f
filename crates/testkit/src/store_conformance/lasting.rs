//! What outlives a process.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, poll};
use rockbot_store::{StoreError, Write, Written};
use tokio::task::JoinSet;

use crate::{
    bed::soon,
    store_bed::{StoreBed, done, key},
};

const MINUTE: Duration = Duration::from_secs(60);

async fn close_both(bed: &StoreBed) {
    soon("the end", bed.here.close()).await;
    soon("the end", bed.there.close()).await;
}

pub async fn entries_survive_reopening(bed: StoreBed) {
    let version = bed.put("a", "for ever").await;
    bed.put_for("b", "for a minute", MINUTE).await;
    close_both(&bed).await;
    let store = bed.open().await;
    let entry = store.get(&key("a")).await.expect("read").expect("it is there");
    assert_eq!((entry.version, &entry.value[..]), (version, &b"for ever"[..]));
    assert!(store.get(&key("b")).await.expect("read").is_some());
    bed.hand.advance(MINUTE);
    assert_eq!(store.get(&key("b")).await, Ok(None));
    store.close().await;
}

pub async fn versions_go_on_after_reopening(bed: StoreBed) {
    let before = bed.put("a", "").await;
    bed.remove("a", rockbot_store::Expected::Anything).await;
    close_both(&bed).await;
    let store = bed.open().await;
    assert!(done(store.write(Write::new(key("a"), "")).await) > before);
    store.close().await;
}

pub async fn what_was_written_while_a_store_was_closed_is_there_or_was_refused(bed: StoreBed) {
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&bed.here);
        let key = key(&format!("closing/{number}"));
        tasks.spawn(async move {
            let outcome = store.write(Write::new(key.clone(), "")).await;
            (key, outcome)
        });
    }
    soon("the end", bed.here.close()).await;
    for (key, outcome) in soon("all answers", tasks.join_all()).await {
        let present = soon("a read", bed.there.get(&key)).await.expect("read").is_some();
        match outcome {
            Ok(Written::Done(_)) => assert!(present, "{key} was written"),
            Err(StoreError::Closed) => assert!(!present, "{key} was refused"),
            other => panic!("{key}: {other:?}"),
        }
    }
}

pub async fn writers_of_two_processes_lose_nothing(bed: StoreBed) {
    const EACH: usize = 100;
    let mut tasks = JoinSet::new();
    for number in 0..2 * EACH {
        let store = Arc::clone(if number % 2 == 0 { &bed.here } else { &bed.there });
        let write = Write::new(key(&format!("both/{number}")), "");
        tasks.spawn(async move { done(store.write(write).await) });
    }
    let mut versions = soon("all writes", tasks.join_all()).await;
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), 2 * EACH, "no version was given twice");
    assert_eq!(bed.names("both").await.len(), 2 * EACH);
}

pub async fn a_dropped_write_is_made_whole_or_not_at_all(bed: StoreBed) {
    for _ in 0..20 {
        let mut dropped = bed.here.write(Write::new(key("a"), "whole")).boxed();
        let _ = poll!(&mut dropped);
        drop(dropped);
        let value = bed.value("a").await;
        assert!(value.is_none_or(|value| value == "whole"));
    }
    // The store goes on as if nothing had happened.
    bed.put("a", "after").await;
    assert_eq!(bed.value("b").await, None);
}
