//! The in-memory store.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};

use crate::{
    clock::{Clock, Timestamp},
    key::{Key, Prefix},
    port::{
        Entry, Expected, Extension, MAX_PAGE_BYTES, MAX_PAGE_ENTRIES, Store, StoreError, Version,
        Write, Written,
    },
};

/// Limits of a [`MemoryStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The maximum number of entries. Default: 100,000.
    pub entries: usize,
    /// The maximum size of keys and values, in bytes. Default: 256 MiB.
    pub bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { entries: 100_000, bytes: 256 * 1024 * 1024 }
    }
}

/// An in-memory store. Clones share the entries.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    clock: Clock,
    limits: MemoryLimits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    bytes: usize,
    last_version: i64,
    closed: bool,
}

impl MemoryStore {
    /// Creates an empty store with the default limits.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_limits(clock, MemoryLimits::default())
    }

    /// Creates an empty store.
    #[must_use]
    pub fn with_limits(clock: Clock, limits: MemoryLimits) -> Self {
        Self { clock, limits, state: Arc::default() }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }

    fn read(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.lock()?.live(key, self.clock.now()).cloned())
    }

    fn put(&self, write: Write) -> Result<Written, StoreError> {
        write.check_size()?;
        let mut state = self.lock()?;
        let now = self.clock.now();
        let present = state.live(&write.key, now);
        if !write.expected.is_met_by(present) {
            return Ok(Written::Conflict(present.cloned()));
        }
        if !state.fits(&write, self.limits) {
            state.sweep(now, usize::MAX);
        }
        if !state.fits(&write, self.limits) {
            let MemoryLimits { entries, bytes } = self.limits;
            return Err(StoreError::Full {
                reason: format!(
                    "the in-memory store is limited to {entries} entries and {bytes} bytes; let entries \
                     expire sooner, or use a file: sqlite:PATH"
                ),
            });
        }
        state.last_version += 1;
        let version = Version::from_number(state.last_version);
        let expires_at = write.ttl.map(|ttl| now.after(ttl));
        state.insert(write.key, Entry { value: write.value, version, expires_at });
        Ok(Written::Done(version))
    }

    fn renew(&self, extensions: Vec<Extension>, ttl: Duration) -> Result<Vec<Written>, StoreError> {
        Extension::check_number(&extensions)?;
        let mut state = self.lock()?;
        let now = self.clock.now();
        let extend = |Extension { key, version }| {
            let present = state.live(&key, now).cloned();
            match present {
                Some(entry) if entry.version == version => {
                    state.last_version += 1;
                    let version = Version::from_number(state.last_version);
                    let expires_at = Some(now.after(ttl));
                    state.insert(key, Entry { version, expires_at, ..entry });
                    Written::Done(version)
                }
                present => Written::Conflict(present),
            }
        };
        Ok(extensions.into_iter().map(extend).collect())
    }

    fn delete(&self, key: &Key, expected: Expected) -> Result<bool, StoreError> {
        let mut state = self.lock()?;
        let present = state.live(key, self.clock.now());
        let removes = present.is_some() && expected.is_met_by(present);
        if removes {
            state.remove(key);
        }
        Ok(removes)
    }

    fn page(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<(Key, Entry)>, StoreError> {
        let now = self.clock.now();
        let mut bytes = 0;
        let state = self.lock()?;
        let start = Bound::Excluded(prefix.start_after(after));
        let page = state
            .entries
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| prefix.contains(key))
            .filter(|(_, entry)| !entry.is_expired(now))
            .take(limit.min(MAX_PAGE_ENTRIES))
            .take_while(|(_, entry)| {
                let fits = bytes < MAX_PAGE_BYTES;
                bytes += entry.value.len();
                fits
            });
        Ok(page.map(|(key, entry)| (key.clone(), entry.clone())).collect())
    }
}

impl State {
    fn live(&self, key: &Key, now: Timestamp) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !entry.is_expired(now))
    }

    fn fits(&self, write: &Write, limits: MemoryLimits) -> bool {
        let replaced = self.entries.get(&write.key);
        let entries = self.entries.len() + usize::from(replaced.is_none());
        let freed = replaced.map_or(0, |entry| size(&write.key, entry.value.len()));
        let bytes = self.bytes - freed + size(&write.key, write.value.len());
        entries <= limits.entries && bytes <= limits.bytes
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        self.remove(&key);
        self.bytes += size(&key, entry.value.len());
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= size(key, entry.value.len());
        }
    }

    fn sweep(&mut self, now: Timestamp, limit: usize) -> usize {
        let expired = self.entries.iter().filter(|(_, entry)| entry.is_expired(now));
        let keys: Vec<_> = expired.take(limit).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.remove(key);
        }
        keys.len()
    }
}

fn size(key: &Key, value_bytes: usize) -> usize {
    key.as_str().len() + value_bytes
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        ready(self.read(key)).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        ready(self.put(write)).boxed()
    }

    fn extend(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<Vec<Written>, StoreError>> {
        ready(self.renew(extensions, ttl)).boxed()
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        ready(self.delete(key, expected)).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        ready(self.page(prefix, after, limit)).boxed()
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        let swept = self.lock().map(|mut state| state.sweep(self.clock.now(), limit) as u64);
        ready(swept).boxed()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        ready(self.lock().map(|_| self.clock.now())).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.state.lock().closed = true;
        ready(()).boxed()
    }
}
