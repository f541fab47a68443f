//! Extensions of the time to live of several entries.

use std::{sync::Arc, time::Duration};

use rockbot_store::{
    Expected, Extension, MAX_EXTENSIONS, Store, StoreError, Version, Write, Written,
};

use super::writers::run_writers;
use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, key},
};

const TTL: Duration = Duration::from_secs(60);

async fn extend(
    store: &Arc<dyn Store>,
    extensions: Vec<Extension>,
) -> Result<Vec<Written>, StoreError> {
    within_timeout("an extension", store.extend(extensions, TTL)).await
}

fn extension(name: &str, version: Version) -> Extension {
    Extension { key: key(name), version }
}

/// Writes entries that expire, and returns their extensions.
async fn entries(fixture: &StoreFixture, number: usize) -> Vec<Extension> {
    let mut extensions = Vec::new();
    for number in 0..number {
        let name = format!("lease/{number}");
        extensions.push(extension(&name, fixture.put_with_ttl(&name, "owner", TTL).await));
    }
    extensions
}

pub async fn extended_entry_keeps_its_value_and_outlives_its_ttl(fixture: StoreFixture) {
    let extensions = entries(&fixture, MAX_EXTENSIONS).await;
    fixture.clock.advance(TTL / 2);
    let outcomes = extend(&fixture.local, extensions.clone()).await.expect("extended");
    fixture.clock.advance(TTL * 3 / 4);
    assert_eq!(outcomes.len(), extensions.len());
    for (Extension { key, version }, outcome) in extensions.iter().zip(outcomes) {
        let entry = fixture.remote.get(key).await.expect("read").expect("it has not expired");
        assert_eq!((&entry.value[..], outcome), (&b"owner"[..], Written::Done(entry.version)));
        assert!(entry.version > *version);
    }
    assert_eq!(extend(&fixture.local, Vec::new()).await, Ok(Vec::new()));
}

pub async fn extension_of_another_version_conflicts_alone(fixture: StoreFixture) {
    let mut extensions = entries(&fixture, 4).await;
    let replaced = fixture.put("lease/1", "other").await;
    fixture.remove("lease/2", Expected::Anything).await;
    extensions.push(extension("lease/absent", replaced));
    let outcomes = extend(&fixture.local, extensions).await.expect("extended");
    let [Written::Done(first), Written::Conflict(Some(other)), conflicts @ ..] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((other.version, &other.value[..]), (replaced, &b"other"[..]));
    let [Written::Conflict(None), Written::Done(last), Written::Conflict(None)] = conflicts else {
        panic!("{conflicts:?}")
    };
    assert!(first != last && *first > replaced && *last > replaced);
    assert_eq!(fixture.get("lease/1").await.expect("an entry").version, replaced);
}

pub async fn expired_entry_is_not_extended(fixture: StoreFixture) {
    let extensions = entries(&fixture, 1).await;
    fixture.clock.advance(TTL);
    let outcomes = extend(&fixture.local, extensions).await;
    assert_eq!(outcomes, Ok(vec![Written::Conflict(None)]));
    assert_eq!(fixture.get("lease/0").await, None);
}

pub async fn number_of_extensions_is_limited(fixture: StoreFixture) {
    let extensions = vec![extension("lease/0", Version::from_number(1)); MAX_EXTENSIONS + 1];
    let (entries, limit) = (MAX_EXTENSIONS + 1, MAX_EXTENSIONS);
    let rejected = extend(&fixture.local, extensions).await;
    assert_eq!(rejected, Err(StoreError::TooManyEntries { entries, limit }));
}

pub async fn concurrent_extensions_of_the_same_entries_end(fixture: StoreFixture) {
    let extensions = entries(&fixture, 64).await;
    let outcomes = run_writers([&fixture.local, &fixture.remote], |number, store| {
        // Each names them in another order.
        let mut extensions = extensions.clone();
        extensions.rotate_left(number * 7 % 64);
        async move { store.extend(extensions, TTL).await.expect("a result") }
    })
    .await;
    let extended = outcomes.into_iter().flatten().filter(|one| matches!(one, Written::Done(_)));
    assert_eq!(extended.count(), extensions.len(), "each entry is extended once");
}

pub async fn extension_races_with_writes(fixture: StoreFixture) {
    let contended = key("lease/0");
    fixture.put_with_ttl("lease/0", "owner", TTL).await;
    run_writers([&fixture.local, &fixture.remote], |number, store| {
        let key = contended.clone();
        async move {
            let mut seen = Version::from_number(0);
            for _ in 0..8 {
                let entry = store.get(&key).await.expect("read").expect("an entry");
                assert!(entry.version >= seen, "{} after {seen}", entry.version);
                seen = entry.version;
                if number % 2 == 0 {
                    let extension = Extension { key: key.clone(), version: seen };
                    let outcomes = store.extend(vec![extension], TTL).await.expect("a result");
                    if let [Written::Done(version)] = outcomes[..] {
                        assert!(version > seen, "extended to {version} after {seen}");
                        seen = version;
                    }
                } else {
                    let write = Write::new(key.clone(), "owner").with_ttl(TTL);
                    let Written::Done(version) = store.write(write).await.expect("a result") else {
                        panic!("an unconditional write")
                    };
                    assert!(version > seen, "wrote {version} after {seen}");
                    seen = version;
                }
            }
        }
    })
    .await;
}
