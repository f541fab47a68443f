//! Handlers that held the earlier deliveries of a request, and how many of them may have crashed.
//!
//! The broker counts a delivery for a lost connection as it does for a crash, and several when it restarts
//! itself: it passes requests from one closing connection to the next, and to consumers that are already
//! gone. So each handler records that it holds a redelivered request, before anything else. A handler that
//! renews its lease afterwards has survived the request:
//!
//! | earlier delivery | may have crashed its handler |
//! |---|---|
//! | the first, which is not recorded | yes |
//! | its handler renews its lease | no |
//! | its handler's lease is gone, or not renewed within 4 s | yes |
//! | not recorded, in a shared journal | no: no handler received it, or none got to start it |
//! | not recorded, in another journal | yes |

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{
    FutureExt, TryFutureExt,
    future::BoxFuture,
    stream::{self, StreamExt},
};
use rockbot_store::{Expected, Key, Store, StoreError, Write, Written};
use serde::{Deserialize, Serialize};

use super::{call_description::digest, journal::CallJournal, quarantine::Inbound};

/// Retention of the holders of a request without a time budget.
const DEFAULT_RETENTION: Duration = Duration::from_secs(600);

/// Maximum number of recorded deliveries; older ones are dropped. A decision needs two possible crashes, and one in
/// quarantine three.
const MAX_HOLDERS: usize = 8;

/// Maximum number of attempts to record a holder while others do so.
const MAX_WRITES: u32 = 8;

/// Incarnations of the handlers that held a request, by the number of the delivery.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Holders(BTreeMap<u32, String>);

/// Records this process as the holder of a redelivered request. Returns the number of earlier deliveries
/// that may have crashed their handlers, which takes up to 4 s if `limit` may be reached.
///
/// # Errors
/// When the store fails.
pub(super) async fn possible_crashes(
    journal: &CallJournal,
    inbound: Inbound<'_>,
    limit: u32,
) -> Result<u32, StoreError> {
    let own = journal.incarnation().await?;
    let attempt = inbound.delivery.attempt();
    let Holders(earlier) = record(journal.store(), inbound, attempt, &own).await?;
    let recorded = u32::try_from(earlier.len()).unwrap_or(u32::MAX);
    let unrecorded = if journal.is_shared() { 1 } else { unrecorded(&earlier, attempt) };
    if unrecorded.saturating_add(recorded) < limit {
        return Ok(unrecorded + recorded);
    }
    let mut others = BTreeMap::<&str, u32>::new();
    for holder in earlier.values().filter(|holder| **holder != *own) {
        *others.entry(holder).or_default() += 1;
    }
    let lost: Vec<BoxFuture<'_, Result<u32, StoreError>>> = others
        .into_iter()
        .map(|(holder, deliveries)| {
            let survived = journal.renews(holder);
            survived.map_ok(move |survived| if survived { 0 } else { deliveries }).boxed()
        })
        .collect();
    let mut lost = stream::iter(lost).buffer_unordered(MAX_HOLDERS);
    let mut crashes = unrecorded;
    while let Some(deliveries) = lost.next().await {
        crashes = crashes.saturating_add(deliveries?);
    }
    Ok(crashes)
}

/// Returns the number of deliveries before `attempt` without a recorded holder: the first, and those of the newest that
/// no handler recorded. Older ones are no longer recorded.
fn unrecorded(earlier: &BTreeMap<u32, String>, attempt: u32) -> u32 {
    let newest = u32::try_from(MAX_HOLDERS - 1).unwrap_or(u32::MAX);
    let from = attempt.saturating_sub(newest).max(2);
    let recorded = u32::try_from(earlier.range(from..).count()).unwrap_or(u32::MAX);
    1 + attempt.saturating_sub(from).saturating_sub(recorded)
}

/// Records the holder of delivery `attempt`, and returns those of the earlier deliveries.
async fn record(
    store: &Arc<dyn Store>,
    inbound: Inbound<'_>,
    attempt: u32,
    own: &str,
) -> Result<Holders, StoreError> {
    let (queue, message) = (inbound.delivery.routing_key(), &inbound.envelope().message_id);
    let key = Key::new(["deliveries", &digest([queue.as_str(), message.as_str()])])
        .map_err(|error| StoreError::Unusable { reason: error.to_string() })?;
    let retention = inbound.envelope().remaining().unwrap_or_default();
    let retention = retention.clamp(DEFAULT_RETENTION, super::MAX_BUDGET);
    let mut found = store.get(&key).await?;
    for _ in 0..MAX_WRITES {
        let (mut holders, version) = match &found {
            Some(entry) => {
                let holders = serde_json::from_slice::<Holders>(&entry.value).unwrap_or_default();
                (holders, Some(entry.version))
            }
            None => (Holders::default(), None),
        };
        holders.0.retain(|delivery, _| *delivery < attempt);
        while holders.0.len() >= MAX_HOLDERS {
            holders.0.pop_first();
        }
        let earlier = holders.clone();
        holders.0.insert(attempt, own.to_owned());
        let value = serde_json::to_vec(&holders)
            .map_err(|error| StoreError::Unusable { reason: error.to_string() })?;
        let expected = version.map_or(Expected::Absent, Expected::Version);
        let write = Write::new(key.clone(), value).with_ttl(retention).with_expected(expected);
        match store.write(write).await? {
            Written::Done(_) => return Ok(earlier),
            Written::Conflict(entry) => found = entry,
        }
    }
    Err(StoreError::Unavailable { reason: "too many concurrent writes".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_that_are_no_longer_recorded_are_not_counted_again() {
        let recorded = |deliveries: std::ops::Range<u32>| {
            deliveries.map(|one| (one, "handler".to_owned())).collect::<BTreeMap<_, _>>()
        };
        for (deliveries, attempt, expected) in [
            (2..2, 2, 1),
            (2..3, 3, 1),
            (3..3, 3, 2),
            (2..9, 9, 1),
            (4..11, 11, 1),
            (93..100, 100, 1),
            (5..10, 11, 3),
        ] {
            assert_eq!(unrecorded(&recorded(deliveries), attempt), expected, "attempt {attempt}");
        }
    }
}
