//! Where results are kept, and where equal calls wait for the one that runs.

use std::{sync::Arc, time::Duration};

use moka::{Expiry, future::Cache, ops::compute::Op, policy::EvictionPolicy};
use tokio::time::Instant;

use crate::{failure::ToolFailure, result::ToolResult};

/// Kept results, shared by all calls of a process. Gone when it ends.
#[derive(Clone)]
pub struct ResultCache {
    entries: Cache<Key, Kept>,
    /// The largest result that is kept, in bytes.
    pub(super) max_result: usize,
}

/// What makes calls equal, as a digest.
pub(super) type Key = [u8; 32];

/// A result that is kept.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) result: Arc<ToolResult>,
    /// What it takes up.
    pub(super) bytes: u32,
    pub(super) until: Instant,
}

/// How a call ended that others waited for and whose result is not kept.
pub(super) enum Unkept {
    /// With a result that is not kept.
    Told(Box<ToolResult>),
    /// With a failure that would be anybody's.
    Failed(ToolFailure),
    /// With a failure that is its own asker's affair: the others have to try by themselves.
    Own,
}

/// Room for the key and the bookkeeping of an entry, in bytes.
pub(super) const ENTRY_BYTES: usize = 256;

impl ResultCache {
    /// Room for `max_bytes` of results. One result gets at most a sixteenth of it. When there is no
    /// more room, the one that was not asked for the longest goes.
    #[must_use]
    pub fn new(max_bytes: u64) -> Arc<Self> {
        let entries = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|_: &Key, kept: &Kept| kept.bytes)
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(Expires)
            .build();
        let max_result = usize::try_from(max_bytes / 16).unwrap_or(usize::MAX);
        Arc::new(Self { entries, max_result })
    }

    /// What is kept under the key; else what `run` says, which runs for one of those who ask at the
    /// same time.
    ///
    /// # Cancellation
    /// When the one whose `run` runs is dropped, that of another who waits runs.
    pub(super) async fn kept_or(
        &self,
        key: Key,
        run: impl Future<Output = Result<Kept, Unkept>>,
    ) -> Result<Kept, Arc<Unkept>> {
        self.entries.try_get_with(key, run).await
    }

    /// Removes an entry whose time is over, and no other that took its place.
    pub(super) async fn forget(&self, key: Key) {
        let is_over = |kept: &Kept| kept.until <= Instant::now();
        let stale = self.entries.entry(key).and_compute_with(|entry| {
            let over = entry.is_some_and(|entry| is_over(entry.value()));
            std::future::ready(if over { Op::Remove } else { Op::Nop })
        });
        stale.await;
    }
}

/// Gives the room of an entry back when its time is over. It goes by the machine's clock; what may
/// be told is decided by `until`.
struct Expires;

impl Expiry<Key, Kept> for Expires {
    fn expire_after_create(&self, _: &Key, kept: &Kept, _: std::time::Instant) -> Option<Duration> {
        Some(kept.until.saturating_duration_since(Instant::now()))
    }

    fn expire_after_update(
        &self,
        _: &Key,
        kept: &Kept,
        _: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(kept.until.saturating_duration_since(Instant::now()))
    }
}

impl std::fmt::Debug for ResultCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResultCache").field("entries", &self.entries.entry_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn keep(cache: &ResultCache, key: u8) -> Kept {
        let (result, until) = (Arc::new(ToolResult::text("kept")), Instant::now() + MINUTE);
        let run = async { Ok(Kept { result, bytes: 1000, until }) };
        cache.kept_or([key; 32], run).await.unwrap_or_else(|_| panic!("it is kept"))
    }

    #[tokio::test]
    async fn what_was_asked_for_often_does_not_keep_fresh_results_out() {
        let cache = ResultCache::new(4000);
        for _ in 0..20 {
            for key in 0..4 {
                keep(&cache, key).await;
            }
            cache.entries.run_pending_tasks().await;
        }
        for key in 10..14 {
            keep(&cache, key).await;
            cache.entries.run_pending_tasks().await;
            assert!(cache.entries.contains_key(&[key; 32]), "{key}");
        }
    }
}
