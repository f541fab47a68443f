//! Many writers at once, on both ends.

use std::{future::Future, sync::Arc};

use rockbot_store::{Expected, MAX_VALUE_BYTES, Store, StoreError, Version, Write, Written};
use tokio::task::JoinSet;

use crate::{
    bed::soon,
    store_bed::{StoreBed, done, key},
};

const WRITERS: usize = 32;

/// Runs one task for each writer, half of them on each end, and returns what they found.
async fn all_at_once<T, F>(bed: &StoreBed, task: impl Fn(usize, Arc<dyn Store>) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        let end = if number % 2 == 0 { &bed.here } else { &bed.there };
        tasks.spawn(task(number, Arc::clone(end)));
    }
    soon("all writers", tasks.join_all()).await
}

async fn one_winner(bed: StoreBed, expected: Expected) {
    let outcomes = all_at_once(&bed, |number, store| async move {
        let write = Write::new(key("a"), number.to_string()).expecting(expected);
        (number, store.write(write).await.expect("an answer"))
    })
    .await;
    let entry = bed.get("a").await.expect("somebody won");
    for (number, outcome) in outcomes {
        let won = entry.value == number.to_string();
        match outcome {
            Written::Done(version) => assert!(won && version == entry.version, "{number} lost"),
            Written::Conflict(present) => assert!(!won && present.as_ref() == Some(&entry)),
        }
    }
}

pub async fn of_many_that_expect_nothing_one_wins(bed: StoreBed) {
    one_winner(bed, Expected::Absent).await;
}

pub async fn of_many_that_expect_a_version_one_wins(bed: StoreBed) {
    let version = bed.put("a", "before").await;
    one_winner(bed, Expected::Version(version)).await;
}

pub async fn a_counter_raised_by_many_counts_them_all(bed: StoreBed) {
    bed.put("count", "0").await;
    all_at_once(&bed, |_, store| async move {
        let mut entry = store.get(&key("count")).await.expect("read").expect("it is there");
        loop {
            let count: usize = String::from_utf8_lossy(&entry.value).parse().expect("a number");
            let write = Write::new(key("count"), (count + 1).to_string());
            let expected = Expected::Version(entry.version);
            match store.write(write.expecting(expected)).await.expect("an answer") {
                Written::Done(_) => break,
                Written::Conflict(present) => entry = present.expect("nobody removes it"),
            }
        }
    })
    .await;
    assert_eq!(bed.value("count").await.expect("it is there"), WRITERS.to_string());
}

pub async fn a_refused_write_fails_none_of_its_neighbours(bed: StoreBed) {
    let taken = bed.put("taken", "").await;
    let outcomes = all_at_once(&bed, |number, store| async move {
        let name = format!("neighbour/{number}");
        let write = match number % 4 {
            0 => Write::new(key(&name), vec![0; MAX_VALUE_BYTES + 1]),
            1 => Write::new(key("taken"), "").expecting(Expected::Absent),
            _ => Write::new(key(&name), "fine"),
        };
        (number, store.write(write).await)
    })
    .await;
    for (number, outcome) in outcomes {
        match number % 4 {
            0 => assert!(matches!(outcome, Err(StoreError::TooLarge { .. })), "{outcome:?}"),
            1 => assert!(matches!(outcome, Ok(Written::Conflict(Some(_)))), "{outcome:?}"),
            _ => assert!(done(outcome) > taken),
        }
    }
    assert_eq!(bed.names("neighbour").await.len(), WRITERS / 2);
}

pub async fn a_version_never_goes_back_while_others_write_and_remove(bed: StoreBed) {
    const ROUNDS: usize = 8;
    let key = key("contended");
    let contended = key.clone();
    all_at_once(&bed, |number, store| {
        let key = contended.clone();
        async move {
            let mut seen = Version::from_number(0);
            for _ in 0..ROUNDS {
                if number % 4 == 0 {
                    store.remove(&key, Expected::Anything).await.expect("removed or not");
                } else if let Some(entry) = store.get(&key).await.expect("read") {
                    assert!(entry.version >= seen, "{} after {seen}", entry.version);
                    seen = entry.version;
                }
                let version = done(store.write(Write::new(key.clone(), "x")).await);
                assert!(version > seen, "wrote {version} after {seen}");
                seen = version;
            }
        }
    })
    .await;
}
