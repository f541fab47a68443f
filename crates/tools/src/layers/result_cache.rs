//! Storage of cached results.

use std::{sync::Arc, time::Duration};

use moka::{Expiry, future::Cache, ops::compute::Op, policy::EvictionPolicy};
use tokio::time::Instant;

use crate::{failure::ToolFailure, result::ToolResult};

/// Cached results, shared by all calls of a process. Not persistent.
#[derive(Clone)]
pub struct ResultCache {
    entries: Cache<Key, CachedResult>,
    /// Maximum size of a cached result, in bytes.
    pub(super) max_result: usize,
}

/// Digest of the properties that make calls equal.
pub(super) type Key = [u8; 32];

/// A cached result.
#[derive(Clone)]
pub(super) struct CachedResult {
    pub(super) result: Arc<ToolResult>,
    /// Memory that it occupies.
    pub(super) bytes: u32,
    pub(super) until: Instant,
}

/// Outcome of a call that others waited for and that is not cached.
pub(super) enum Uncached {
    /// A result that is not cacheable.
    Result(Box<ToolResult>),
    /// A failure that equal calls would have as well.
    Failed(ToolFailure),
    /// A failure specific to its caller, such as a timeout. The waiting calls must run themselves.
    Unshared,
}

/// Memory for the key and the bookkeeping of an entry, in bytes.
pub(super) const ENTRY_BYTES: usize = 256;

impl ResultCache {
    /// Creates a cache for `max_bytes` of results. One result gets at most a sixteenth of it. The
    /// least recently used entry is evicted first.
    #[must_use]
    pub fn new(max_bytes: u64) -> Arc<Self> {
        let entries = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|_: &Key, cached: &CachedResult| cached.bytes)
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(Expires)
            .build();
        let max_result = usize::try_from(max_bytes / 16).unwrap_or(usize::MAX);
        Arc::new(Self { entries, max_result })
    }

    /// Returns the cached result under the key, or else the outcome of `run`. Of concurrent callers
    /// only one runs.
    ///
    /// # Cancellation
    /// If the caller that runs is dropped, the `run` of a waiting caller runs.
    pub(super) async fn get_or_run(
        &self,
        key: Key,
        run: impl Future<Output = Result<CachedResult, Uncached>>,
    ) -> Result<CachedResult, Arc<Uncached>> {
        self.entries.try_get_with(key, run).await
    }

    /// Removes an entry if it has expired; a newer entry under the same key stays.
    pub(super) async fn remove_expired(&self, key: Key) {
        let is_expired = |cached: &CachedResult| cached.until <= Instant::now();
        let stale = self.entries.entry(key).and_compute_with(|entry| {
            let expired = entry.is_some_and(|entry| is_expired(entry.value()));
            std::future::ready(if expired { Op::Remove } else { Op::Nop })
        });
        stale.await;
    }
}

/// Frees the memory of expired entries. It uses the system clock; whether a result may still be
/// returned depends on `until`.
struct Expires;

impl Expiry<Key, CachedResult> for Expires {
    fn expire_after_create(
        &self,
        _: &Key,
        cached: &CachedResult,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Some(cached.until.saturating_duration_since(Instant::now()))
    }

    fn expire_after_update(
        &self,
        _: &Key,
        cached: &CachedResult,
        _: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(cached.until.saturating_duration_since(Instant::now()))
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

    async fn insert(cache: &ResultCache, key: u8) -> CachedResult {
        let (result, until) = (Arc::new(ToolResult::text("cached")), Instant::now() + MINUTE);
        let run = async { Ok(CachedResult { result, bytes: 1000, until }) };
        cache.get_or_run([key; 32], run).await.unwrap_or_else(|_| panic!("it is cached"))
    }

    #[tokio::test]
    async fn frequent_entries_do_not_block_new_ones() {
        let cache = ResultCache::new(4000);
        for _ in 0..20 {
            for key in 0..4 {
                insert(&cache, key).await;
            }
            cache.entries.run_pending_tasks().await;
        }
        for key in 10..14 {
            insert(&cache, key).await;
            cache.entries.run_pending_tasks().await;
            assert!(cache.entries.contains_key(&[key; 32]), "{key}");
        }
    }
}
