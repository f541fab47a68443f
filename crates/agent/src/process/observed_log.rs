//! Metrics of appends to the logs of conversations.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use metrics::{Counter, Histogram, counter, histogram};
use rockbot_store::{Appended, Log, LogEntry, LogName, LogPosition, LogState, Prefix, StoreError};
use tokio::time::Instant;

/// A log that adds metrics to another one.
///
/// | metric | meaning |
/// |---|---|
/// | `rockbot_agent_log_append_seconds` | time of an append, also of a failed one |
/// | `rockbot_agent_log_conflicts_total` | appends refused because of another writer |
pub(super) struct ObservedLog {
    log: Arc<dyn Log>,
    duration: Histogram,
    conflicts: Counter,
}

impl ObservedLog {
    pub(super) fn new(log: Arc<dyn Log>) -> Self {
        let duration = histogram!("rockbot_agent_log_append_seconds");
        let conflicts = counter!("rockbot_agent_log_conflicts_total");
        Self { log, duration, conflicts }
    }
}

impl Log for ObservedLog {
    fn append<'a>(
        &'a self,
        name: &'a LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<Appended, StoreError>> {
        Box::pin(async move {
            let start = Instant::now();
            let appended = self.log.append(name, at, entries, ttl).await;
            self.duration.record(start.elapsed().as_secs_f64());
            if matches!(appended, Ok(Appended::Conflict { .. })) {
                self.conflicts.increment(1);
            }
            appended
        })
    }

    fn read<'a>(
        &'a self,
        name: &'a LogName,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, StoreError>> {
        self.log.read(name, from, limit)
    }

    fn state<'a>(
        &'a self,
        name: &'a LogName,
    ) -> BoxFuture<'a, Result<Option<LogState>, StoreError>> {
        self.log.state(name)
    }

    fn logs<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a LogName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogState>, StoreError>> {
        self.log.logs(prefix, after, limit)
    }

    fn truncate<'a>(
        &'a self,
        name: &'a LogName,
        before: u64,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.log.truncate(name, before)
    }

    fn delete<'a>(&'a self, name: &'a LogName) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.log.delete(name)
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.log.sweep(limit)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.log.close()
    }
}
