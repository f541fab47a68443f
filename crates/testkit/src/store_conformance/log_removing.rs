//! Truncation and deletion of logs.

use rockbot_store::{Appended, LogPosition, LogState};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, log_name},
};

async fn truncate(fixture: &StoreFixture, name: &str, before: u64) -> u64 {
    let name = log_name(name);
    let truncated = fixture.local_log.truncate(&name, before);
    within_timeout("a truncation", truncated).await.expect("truncated")
}

async fn delete(fixture: &StoreFixture, name: &str) -> bool {
    let name = log_name(name);
    within_timeout("a deletion", fixture.local_log.delete(&name)).await.expect("deleted or not")
}

fn extent(state: &LogState) -> (u64, u64, u64, u64) {
    (state.first, state.next, state.entries, state.bytes)
}

pub async fn truncation_keeps_later_entries(fixture: StoreFixture) {
    fixture.append("a", 1, &["1", "22", "333"]).await;
    fixture.append("b", 1, &["other"]).await;
    for (before, removed) in [(0, 0), (1, 0), (3, 2), (2, 0)] {
        assert_eq!(truncate(&fixture, "a", before).await, removed, "before {before}");
    }
    assert_eq!(fixture.log_entries("a").await, [(3, "333".to_owned())]);
    assert_eq!(extent(&fixture.log_state("a").await.expect("a log")), (3, 4, 1, 3));
    assert_eq!(fixture.append("a", 1, &["x"]).await.number(), Err(4));
    assert_eq!(fixture.append("a", 4, &["4444"]).await.number(), Ok(5));
    assert_eq!(extent(&fixture.log_state("a").await.expect("a log")), (3, 5, 2, 7));
    assert_eq!(fixture.log_entries("b").await.len(), 1);
}

pub async fn truncation_beyond_end_keeps_next_number(fixture: StoreFixture) {
    assert_eq!(truncate(&fixture, "a", 5).await, 0);
    assert_eq!(fixture.log_state("a").await, None);
    fixture.append("a", 1, &["one", "two"]).await;
    assert_eq!(truncate(&fixture, "a", u64::MAX).await, 2);
    assert_eq!(extent(&fixture.log_state("a").await.expect("a log")), (3, 3, 0, 0));
    assert!(fixture.log_entries("a").await.is_empty());
    assert_eq!(fixture.append("a", 1, &["x"]).await.number(), Err(3));
    assert_eq!(fixture.append("a", 3, &["three"]).await.number(), Ok(4));
    assert_eq!(fixture.log_entries("a").await, [(3, "three".to_owned())]);
}

pub async fn deleted_log_starts_again(fixture: StoreFixture) {
    fixture.append("a", 1, &["one", "two"]).await;
    assert!(delete(&fixture, "a").await);
    assert_eq!(fixture.log_state("a").await, None);
    assert!(fixture.log_entries("a").await.is_empty());
    assert_eq!(fixture.append("a", 3, &["stale"]).await.number(), Err(1));
    assert_eq!(fixture.append("a", 1, &["new"]).await.number(), Ok(2));
    assert_eq!(fixture.log_entries("a").await, [(1, "new".to_owned())]);
}

/// Appends to the log that `at` names.
async fn append_to(fixture: &StoreFixture, at: LogPosition, value: &'static str) -> Appended {
    let appended = fixture.append_with_ttl("a", at, &[value], None).await;
    appended.expect("the log accepts the append")
}

pub async fn stale_append_conflicts_with_recreated_log(fixture: StoreFixture) {
    let mut stale = LogPosition::START;
    for round in 0..3 {
        let Appended::Done { next } = append_to(&fixture, LogPosition::START, "one").await else {
            panic!("round {round}: the log exists");
        };
        let state = fixture.log_state("a").await.expect("a log");
        assert_eq!(next, state.end());
        // The new log has the length of the one before.
        let refused = append_to(&fixture, LogPosition { number: 2, ..stale }, "stale").await;
        if round > 0 {
            assert_ne!(next.log, stale.log);
            assert_eq!(refused, Appended::Conflict { next });
            let appended = append_to(&fixture, next, "two").await;
            let next = LogPosition { number: 3, ..next };
            assert_eq!(appended, Appended::Done { next });
        }
        stale = next;
        assert!(delete(&fixture, "a").await);
        // Another log has the largest id until the next round.
        if round == 1 {
            fixture.append("other", 1, &["x"]).await;
        }
        assert_eq!(
            append_to(&fixture, stale, "stale").await,
            Appended::Conflict { next: LogPosition::START }
        );
    }
}

pub async fn deletion_of_absent_log_is_no_error(fixture: StoreFixture) {
    fixture.append("a/b", 1, &["one"]).await;
    assert!(!delete(&fixture, "a").await);
    assert!(delete(&fixture, "a/b").await);
    assert!(!delete(&fixture, "a/b").await);
}
