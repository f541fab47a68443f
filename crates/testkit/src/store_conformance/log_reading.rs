//! Reading and listing of logs.

use bytes::Bytes;
use rockbot_store::{LogName, LogState, MAX_LOG_ENTRY_BYTES, MAX_PAGE_BYTES};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, log_name, prefix},
};

async fn numbers(fixture: &StoreFixture, name: &str, from: u64, limit: usize) -> Vec<u64> {
    let name = log_name(name);
    let page = within_timeout("a page", fixture.remote_log.read(&name, from, limit)).await;
    page.expect("read").into_iter().map(|entry| entry.number).collect()
}

async fn logs(
    fixture: &StoreFixture,
    below: &str,
    after: Option<&LogName>,
    limit: usize,
) -> Vec<LogState> {
    let below = prefix(below);
    let page = within_timeout("a page", fixture.remote_log.logs(&below, after, limit)).await;
    page.expect("listed")
}

pub async fn pages_of_entries_have_no_gaps_or_repeats(fixture: StoreFixture) {
    for at in 1..=23 {
        fixture.append("a", at, &["x"]).await;
        fixture.append("b", at, &["y"]).await;
    }
    let mut found = Vec::new();
    loop {
        let page = numbers(&fixture, "a", found.last().map_or(1, |last| last + 1), 5).await;
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 5);
        found.extend(page);
    }
    assert!(found.into_iter().eq(1..=23));
    assert!(numbers(&fixture, "a", 0, 3).await.into_iter().eq(1..=3));
    assert!(numbers(&fixture, "a", u64::MAX, 3).await.is_empty());
}

pub async fn page_of_entries_is_bounded(fixture: StoreFixture) {
    let in_page = (MAX_PAGE_BYTES / MAX_LOG_ENTRY_BYTES) as u64;
    let value = Bytes::from(vec![0; MAX_LOG_ENTRY_BYTES]);
    let name = log_name("a");
    for at in 1..=in_page + 1 {
        let appended = fixture.local_log.append(&name, at.into(), vec![value.clone()], None);
        within_timeout("an append", appended).await.expect("appended");
    }
    assert!(numbers(&fixture, "a", 1, usize::MAX).await.into_iter().eq(1..=in_page));
    assert_eq!(numbers(&fixture, "a", in_page + 1, usize::MAX).await, [in_page + 1]);
}

pub async fn pages_of_logs_have_no_gaps_or_repeats(fixture: StoreFixture) {
    let names: Vec<_> = (10..33).map(|number| log_name(&format!("logs/{number}"))).collect();
    for number in (10..33).rev() {
        fixture.append(&format!("logs/{number}"), 1, &["x", "y"]).await;
    }
    fixture.append("logsx/1", 1, &["x"]).await;
    let mut found: Vec<LogState> = Vec::new();
    loop {
        let page = logs(&fixture, "logs", found.last().map(|state| &state.name), 5).await;
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 5);
        found.extend(page);
    }
    assert!(found.iter().map(|state| &state.name).eq(&names));
    assert!(found.iter().all(|state| (state.next, state.entries, state.bytes) == (3, 2, 2)));
}

pub async fn prefix_matches_whole_segments(fixture: StoreFixture) {
    for name in ["log/a", "log/a/x", "log/a/x/y", "log/ab", "log/a-b", "log"] {
        fixture.append(name, 1, &["x"]).await;
    }
    let found = logs(&fixture, "log/a", None, usize::MAX).await;
    let names: Vec<_> = found.into_iter().map(|state| state.name).collect();
    assert_eq!(names, [log_name("log/a/x"), log_name("log/a/x/y")]);
}

pub async fn limit_zero_reads_nothing(fixture: StoreFixture) {
    fixture.append("a/b", 1, &["x"]).await;
    assert!(numbers(&fixture, "a/b", 1, 0).await.is_empty());
    assert!(logs(&fixture, "a", None, 0).await.is_empty());
}

pub async fn absent_log_is_empty(fixture: StoreFixture) {
    fixture.append("a", 1, &["x"]).await;
    assert_eq!(fixture.log_state("b").await, None);
    assert!(numbers(&fixture, "b", 1, 10).await.is_empty());
    assert!(logs(&fixture, "b", None, 10).await.is_empty());
}
