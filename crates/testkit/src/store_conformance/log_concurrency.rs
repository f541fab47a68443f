//! Concurrent appends on both connections.

use std::collections::BTreeSet;

use bytes::Bytes;
use rockbot_store::{Appended, Log, LogName, LogPosition, MAX_LOG_ENTRY_BYTES, StoreError};

use super::writers::{WRITERS, run_writers};
use crate::store_fixture::{StoreFixture, log_name};

/// Appends `value` at the end of a log, and returns its number.
async fn append_at_end(log: &dyn Log, name: &LogName, value: String) -> u64 {
    let mut at = 1;
    loop {
        let entries = vec![Bytes::from(value.clone())];
        let appended = log.append(name, at.into(), entries, None).await.expect("a result");
        match appended.number() {
            Ok(next) => {
                assert_eq!(next, at + 1);
                return at;
            }
            Err(next) => {
                assert_ne!(next, at, "a conflict with the right number");
                at = next;
            }
        }
    }
}

async fn check_one_append_succeeds(fixture: StoreFixture, at: u64) {
    let outcomes =
        run_writers([&fixture.local_log, &fixture.remote_log], |number, log| async move {
            let entries = vec![Bytes::from(number.to_string()), Bytes::from_static(b"end")];
            let appended = log.append(&log_name("a"), at.into(), entries, None).await;
            (number, appended.expect("a result").number())
        })
        .await;
    let next = at + 2;
    let (done, conflicts): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|(_, outcome)| *outcome == Ok(next));
    assert_eq!(done.len(), 1);
    assert!(conflicts.iter().all(|(_, outcome)| *outcome == Err(next)));
    let last = fixture.log_entries("a").await.split_off(usize::try_from(at - 1).expect("small"));
    assert_eq!(last, [(at, done[0].0.to_string()), (at + 1, "end".to_owned())]);
}

pub async fn one_concurrent_append_succeeds(fixture: StoreFixture) {
    fixture.append("a", 1, &["one"]).await;
    check_one_append_succeeds(fixture, 2).await;
}

pub async fn one_concurrent_creation_succeeds(fixture: StoreFixture) {
    check_one_append_succeeds(fixture, 1).await;
}

pub async fn writers_of_many_logs_leave_no_gaps(fixture: StoreFixture) {
    const LOGS: usize = 4;
    const EACH: usize = 8;
    let numbers =
        run_writers([&fixture.local_log, &fixture.remote_log], |writer, log| async move {
            let mut appended = Vec::new();
            for round in 0..EACH {
                let index = (writer + round) % LOGS;
                let name = log_name(&format!("many/{index}"));
                appended.push((index, append_at_end(&*log, &name, format!("{writer}")).await));
            }
            appended
        })
        .await;
    let numbers: BTreeSet<_> = numbers.into_iter().flatten().collect();
    let each = (WRITERS * EACH / LOGS) as u64;
    let expected = (0..LOGS).flat_map(|index| (1..=each).map(move |number| (index, number)));
    assert!(numbers.into_iter().eq(expected));
    for index in 0..LOGS {
        let entries = fixture.log_entries(&format!("many/{index}")).await;
        assert!(entries.iter().map(|(number, _)| *number).eq(1..=each));
    }
}

pub async fn appends_to_many_logs_have_their_own_outcomes(fixture: StoreFixture) {
    const ROUNDS: usize = 4;
    let name = |writer: usize| format!("own/{writer}");
    let values = |writer: usize| (0..=writer % 5).map(move |entry| format!("{writer}/{entry}"));
    run_writers([&fixture.local_log, &fixture.remote_log], |writer, log| async move {
        let (name, mut at) = (log_name(&name(writer)), LogPosition::START);
        for _ in 0..ROUNDS {
            let entries: Vec<Bytes> = values(writer).map(Bytes::from).collect();
            let wrong = LogPosition::from(at.number + 1);
            let conflict = log.append(&name, wrong, entries.clone(), None).await;
            assert_eq!(conflict.expect("a result").number(), Err(at.number));
            match log.append(&name, at, entries, None).await.expect("a result") {
                Appended::Done { next } => at = next,
                conflict => panic!("{conflict:?}"),
            }
        }
    })
    .await;
    for writer in 0..WRITERS {
        let expected = (0..ROUNDS).flat_map(|_| values(writer));
        let entries = fixture.log_entries(&name(writer)).await;
        assert!((1..).zip(expected).eq(entries), "log of writer {writer}");
    }
}

pub async fn rejected_append_does_not_fail_others(fixture: StoreFixture) {
    fixture.append("taken", 1, &["one"]).await;
    let outcomes =
        run_writers([&fixture.local_log, &fixture.remote_log], |number, log| async move {
            let (name, bytes) = match number % 4 {
                0 => (format!("other/{number}"), MAX_LOG_ENTRY_BYTES + 1),
                1 => ("taken".to_owned(), 1),
                _ => (format!("other/{number}"), 1),
            };
            let entries = vec![Bytes::from(vec![0; bytes])];
            let appended = log.append(&log_name(&name), LogPosition::START, entries, None).await;
            (number, appended.map(Appended::number))
        })
        .await;
    for (number, outcome) in outcomes {
        match number % 4 {
            0 => assert!(matches!(outcome, Err(StoreError::TooLarge { .. })), "{outcome:?}"),
            1 => assert_eq!(outcome, Ok(Err(2))),
            _ => assert_eq!(outcome, Ok(Ok(2))),
        }
    }
}

pub async fn appends_race_with_truncation(fixture: StoreFixture) {
    let removed =
        run_writers([&fixture.local_log, &fixture.remote_log], |writer, log| async move {
            let name = log_name("a");
            let number = append_at_end(&*log, &name, format!("{writer}")).await;
            if writer % 4 == 0 { log.truncate(&name, number).await.expect("truncated") } else { 0 }
        })
        .await;
    let removed: u64 = removed.into_iter().sum();
    let state = fixture.log_state("a").await.expect("a log");
    let entries = fixture.log_entries("a").await;
    assert_eq!((state.first, state.next), (removed + 1, WRITERS as u64 + 1));
    assert!(entries.iter().map(|(number, _)| *number).eq(state.first..state.next));
    let bytes = entries.iter().map(|(_, value)| value.len() as u64).sum::<u64>();
    assert_eq!((state.entries, state.bytes), (entries.len() as u64, bytes));
}

pub async fn appends_race_with_deletion(fixture: StoreFixture) {
    run_writers([&fixture.local_log, &fixture.remote_log], |writer, log| async move {
        let name = log_name("a");
        append_at_end(&*log, &name, format!("{writer}")).await;
        if writer % 4 == 0 {
            log.delete(&name).await.expect("deleted or not");
        }
    })
    .await;
    append_at_end(&*fixture.local_log, &log_name("a"), "last".to_owned()).await;
    let state = fixture.log_state("a").await.expect("a log");
    let entries = fixture.log_entries("a").await;
    assert!(entries.iter().map(|(number, _)| *number).eq(1..state.next));
    let bytes = entries.iter().map(|(_, value)| value.len() as u64).sum::<u64>();
    assert_eq!((state.entries, state.bytes), (entries.len() as u64, bytes));
}
