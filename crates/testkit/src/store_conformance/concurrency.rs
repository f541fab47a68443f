//! Concurrent writes on both connections.

use rockbot_store::{Expected, MAX_VALUE_BYTES, StoreError, Version, Write, Written};

use super::writers::{WRITERS, run_writers};
use crate::store_fixture::{StoreFixture, expect_written, key};

async fn check_one_writer_succeeds(fixture: StoreFixture, expected: Expected) {
    let outcomes = run_writers([&fixture.local, &fixture.remote], |number, store| async move {
        let write = Write::new(key("a"), number.to_string()).with_expected(expected);
        (number, store.write(write).await.expect("a result"))
    })
    .await;
    let entry = fixture.get("a").await.expect("one write succeeded");
    for (number, outcome) in outcomes {
        let succeeded = entry.value == number.to_string();
        match outcome {
            Written::Done(version) => {
                assert!(succeeded && version == entry.version, "write {number} was lost");
            }
            Written::Conflict(present) => assert!(!succeeded && present.as_ref() == Some(&entry)),
        }
    }
}

pub async fn one_concurrent_create_succeeds(fixture: StoreFixture) {
    check_one_writer_succeeds(fixture, Expected::Absent).await;
}

pub async fn one_concurrent_update_succeeds(fixture: StoreFixture) {
    let version = fixture.put("a", "before").await;
    check_one_writer_succeeds(fixture, Expected::Version(version)).await;
}

pub async fn concurrent_increments_are_all_counted(fixture: StoreFixture) {
    fixture.put("count", "0").await;
    run_writers([&fixture.local, &fixture.remote], |_, store| async move {
        let mut entry = store.get(&key("count")).await.expect("read").expect("an entry");
        loop {
            let count: usize = String::from_utf8_lossy(&entry.value).parse().expect("a number");
            let write = Write::new(key("count"), (count + 1).to_string());
            let expected = Expected::Version(entry.version);
            match store.write(write.with_expected(expected)).await.expect("a result") {
                Written::Done(_) => break,
                Written::Conflict(present) => entry = present.expect("it is never removed"),
            }
        }
    })
    .await;
    assert_eq!(fixture.value("count").await.expect("an entry"), WRITERS.to_string());
}

pub async fn rejected_write_does_not_fail_others(fixture: StoreFixture) {
    let taken = fixture.put("taken", "").await;
    let outcomes = run_writers([&fixture.local, &fixture.remote], |number, store| async move {
        let name = format!("other/{number}");
        let write = match number % 4 {
            0 => Write::new(key(&name), vec![0; MAX_VALUE_BYTES + 1]),
            1 => Write::new(key("taken"), "").with_expected(Expected::Absent),
            _ => Write::new(key(&name), "fine"),
        };
        (number, store.write(write).await)
    })
    .await;
    for (number, outcome) in outcomes {
        match number % 4 {
            0 => assert!(matches!(outcome, Err(StoreError::TooLarge { .. })), "{outcome:?}"),
            1 => assert!(matches!(outcome, Ok(Written::Conflict(Some(_)))), "{outcome:?}"),
            _ => assert!(expect_written(outcome) > taken),
        }
    }
    assert_eq!(fixture.names("other").await.len(), WRITERS / 2);
}

pub async fn versions_grow_under_concurrent_removals(fixture: StoreFixture) {
    const ROUNDS: usize = 8;
    let key = key("contended");
    let contended = key.clone();
    run_writers([&fixture.local, &fixture.remote], |number, store| {
        let key = contended.clone();
        async move {
            let mut seen = Version::from_number(0);
            for _ in 0..ROUNDS {
                if number % 4 == 0 {
                    store.remove(&key, Expected::Anything).await.expect("a result");
                } else if let Some(entry) = store.get(&key).await.expect("read") {
                    assert!(entry.version >= seen, "{} after {seen}", entry.version);
                    seen = entry.version;
                }
                let version = expect_written(store.write(Write::new(key.clone(), "x")).await);
                assert!(version > seen, "wrote {version} after {seen}");
                seen = version;
            }
        }
    })
    .await;
}
