//! The in-memory log.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};
use parking_lot::{Mutex, MutexGuard};

use super::{
    name::LogName,
    port::{Appended, Log, LogEntry, LogId, LogPosition, LogState, check_append},
};
use crate::{
    clock::{Clock, Timestamp},
    key::{Key, Prefix},
    memory::MemoryLimits,
    port::{MAX_PAGE_BYTES, MAX_PAGE_ENTRIES, StoreError},
};

/// In-memory logs. Clones share them.
#[derive(Debug, Clone)]
pub struct MemoryLog {
    clock: Clock,
    limits: MemoryLimits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    logs: BTreeMap<Key, Entries>,
    entries: usize,
    /// The size of all names and values.
    bytes: usize,
    /// The id of the newest log.
    last_id: i64,
    closed: bool,
}

/// The entries of one log.
#[derive(Debug)]
struct Entries {
    id: LogId,
    values: VecDeque<Bytes>,
    first: u64,
    bytes: usize,
    appended_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl Entries {
    fn next(&self) -> u64 {
        self.first + self.values.len() as u64
    }

    fn end(&self) -> LogPosition {
        LogPosition { log: Some(self.id), number: self.next() }
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    fn state(&self, name: LogName) -> LogState {
        LogState {
            name,
            id: self.id,
            first: self.first,
            next: self.next(),
            bytes: self.bytes as u64,
            entries: self.values.len() as u64,
            appended_at: self.appended_at,
        }
    }

    /// Removes the `count` oldest entries, and returns their size in bytes.
    fn remove_oldest(&mut self, count: usize) -> usize {
        let bytes = self.values.drain(..count).map(|value| value.len()).sum();
        self.first += count as u64;
        self.bytes -= bytes;
        bytes
    }
}

impl MemoryLog {
    /// Creates logs with the default limits, which apply to all logs together.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_limits(clock, MemoryLimits::default())
    }

    /// Creates logs with limits, which apply to all logs together.
    #[must_use]
    pub fn with_limits(clock: Clock, limits: MemoryLimits) -> Self {
        Self { clock, limits, state: Arc::default() }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }

    fn try_append(
        &self,
        name: &LogName,
        at: LogPosition,
        values: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> Result<Appended, StoreError> {
        let bytes = check_append(&values)?;
        let mut state = self.lock()?;
        let now = self.clock.now();
        let next = state.live(name, now).map_or(LogPosition::START, Entries::end);
        if !at.accepts(next) {
            return Ok(Appended::Conflict { next });
        }
        if values.is_empty() {
            return Ok(Appended::Done { next });
        }
        let is_new = next == LogPosition::START;
        let name_bytes = if is_new { name.as_str().len() } else { 0 };
        let fits = |state: &State| {
            state.entries + values.len() <= self.limits.entries
                && state.bytes + bytes + name_bytes <= self.limits.bytes
        };
        if is_new {
            // An expired log of this name.
            state.remove(name.as_key());
        }
        if !fits(&state) {
            state.sweep(now, usize::MAX);
        }
        if !fits(&state) {
            let MemoryLimits { entries, bytes } = self.limits;
            return Err(StoreError::Full {
                reason: format!(
                    "the in-memory logs are limited to {entries} entries and {bytes} bytes; delete \
                     logs or let them expire sooner, or use a file: sqlite:PATH"
                ),
            });
        }
        Ok(Appended::Done { next: state.insert(name, values, now, ttl) })
    }

    fn page(&self, name: &LogName, from: u64, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let state = self.lock()?;
        let Some(log) = state.live(name, self.clock.now()) else {
            return Ok(Vec::new());
        };
        let skipped = usize::try_from(from.saturating_sub(log.first)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let values = log.values.iter().skip(skipped).take(limit.min(MAX_PAGE_ENTRIES));
        let page = values.zip(from.max(log.first)..).take_while(|(value, _)| {
            let fits = bytes < MAX_PAGE_BYTES;
            bytes += value.len();
            fits
        });
        Ok(page.map(|(value, number)| LogEntry { number, value: value.clone() }).collect())
    }

    fn state_of(&self, name: &LogName) -> Result<Option<LogState>, StoreError> {
        let state = self.lock()?;
        Ok(state.live(name, self.clock.now()).map(|log| log.state(name.clone())))
    }

    fn page_of_logs(
        &self,
        prefix: &Prefix,
        after: Option<&LogName>,
        limit: usize,
    ) -> Result<Vec<LogState>, StoreError> {
        let now = self.clock.now();
        let state = self.lock()?;
        let start = Bound::Excluded(prefix.start_after(after.map(LogName::as_key)));
        let page = state
            .logs
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| prefix.contains(key))
            .filter(|(_, log)| !log.is_expired(now))
            .take(limit.min(MAX_PAGE_ENTRIES));
        Ok(page.map(|(key, log)| log.state(LogName::from_key(key.clone()))).collect())
    }

    fn truncate_to(&self, name: &LogName, before: u64) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let mut guard = self.lock()?;
        let state = &mut *guard;
        let Some(log) = state.logs.get_mut(name.as_key()).filter(|log| !log.is_expired(now)) else {
            return Ok(0);
        };
        let count = before.min(log.next()).saturating_sub(log.first);
        let removed = usize::try_from(count).unwrap_or(usize::MAX).min(log.values.len());
        state.bytes -= log.remove_oldest(removed);
        state.entries -= removed;
        Ok(removed as u64)
    }

    fn remove(&self, name: &LogName) -> Result<bool, StoreError> {
        let mut state = self.lock()?;
        let existed = state.live(name, self.clock.now()).is_some();
        state.remove(name.as_key());
        Ok(existed)
    }
}

impl State {
    fn live(&self, name: &LogName, now: Timestamp) -> Option<&Entries> {
        self.logs.get(name.as_key()).filter(|log| !log.is_expired(now))
    }

    /// Appends to a log that has not expired, or creates it. Returns the next position.
    fn insert(
        &mut self,
        name: &LogName,
        values: Vec<Bytes>,
        now: Timestamp,
        ttl: Option<Duration>,
    ) -> LogPosition {
        let bytes = values.iter().map(Bytes::len).sum::<usize>();
        if !self.logs.contains_key(name.as_key()) {
            self.bytes += name.as_str().len();
            self.last_id += 1;
        }
        self.entries += values.len();
        self.bytes += bytes;
        let log = self.logs.entry(name.as_key().clone()).or_insert_with(|| Entries {
            id: LogId::from_number(self.last_id),
            values: VecDeque::new(),
            first: 1,
            bytes: 0,
            appended_at: now,
            expires_at: None,
        });
        log.values.extend(values);
        log.bytes += bytes;
        log.appended_at = now;
        log.expires_at = ttl.map(|ttl| now.after(ttl));
        log.end()
    }

    fn remove(&mut self, name: &Key) {
        if let Some(log) = self.logs.remove(name) {
            self.entries -= log.values.len();
            self.bytes -= log.bytes + name.as_str().len();
        }
    }

    fn sweep(&mut self, now: Timestamp, limit: usize) -> usize {
        let expired = self.logs.iter().filter(|(_, log)| log.is_expired(now)).take(limit);
        let names: Vec<Key> = expired.map(|(name, _)| name.clone()).collect();
        let mut removed = 0;
        for name in names {
            let Some(log) = self.logs.get_mut(&name) else { continue };
            let count = log.values.len().min(limit - removed);
            self.bytes -= log.remove_oldest(count);
            self.entries -= count;
            removed += count;
            if removed == limit {
                break;
            }
            self.remove(&name);
            removed += 1;
        }
        removed
    }
}

impl Log for MemoryLog {
    fn append<'a>(
        &'a self,
        name: &'a LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<Appended, StoreError>> {
        ready(self.try_append(name, at, entries, ttl)).boxed()
    }

    fn read<'a>(
        &'a self,
        name: &'a LogName,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, StoreError>> {
        ready(self.page(name, from, limit)).boxed()
    }

    fn state<'a>(
        &'a self,
        name: &'a LogName,
    ) -> BoxFuture<'a, Result<Option<LogState>, StoreError>> {
        ready(self.state_of(name)).boxed()
    }

    fn logs<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a LogName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogState>, StoreError>> {
        ready(self.page_of_logs(prefix, after, limit)).boxed()
    }

    fn truncate<'a>(
        &'a self,
        name: &'a LogName,
        before: u64,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        ready(self.truncate_to(name, before)).boxed()
    }

    fn delete<'a>(&'a self, name: &'a LogName) -> BoxFuture<'a, Result<bool, StoreError>> {
        ready(self.remove(name)).boxed()
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        let swept = self.lock().map(|mut state| state.sweep(self.clock.now(), limit) as u64);
        ready(swept).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.state.lock().closed = true;
        ready(()).boxed()
    }
}
