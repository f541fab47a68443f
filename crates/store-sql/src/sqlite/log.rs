//! Logs in the file of a SQLite store.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Appended, Log, LogEntry, LogName, LogPosition, LogState, MAX_PAGE_ENTRIES, Prefix, Store,
    StoreError,
};

use super::{SqliteStore, failure::explain};
use crate::{
    append::Append,
    row::{self, LogEntryRow, LogRow, signed},
};

impl SqliteStore {
    async fn append_entries(
        &self,
        name: &LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> Result<Appended, StoreError> {
        let append = Append::new(name, at, entries, ttl)?;
        if append.is_check() {
            let state = self.log_state(name).await?;
            return Ok(append.check_fence(state.map_or(LogPosition::START, |state| state.end())));
        }
        self.writer.append(append).await
    }

    async fn log_entries(
        &self,
        name: &LogName,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        const READ: &str = "SELECT entry.number, entry.value FROM rockbot_logs AS log \
             CROSS JOIN rockbot_log_entries AS entry ON entry.log = log.id \
             WHERE log.name = ?1 AND (log.expires_at IS NULL OR log.expires_at > ?2) \
             AND entry.number >= ?3 ORDER BY entry.number LIMIT ?4";
        let rows = sqlx::query_as::<_, LogEntryRow>(READ)
            .bind(name.as_str().to_owned())
            .bind(self.clock.now().as_millis())
            .bind(signed(from))
            .bind(signed(limit.min(MAX_PAGE_ENTRIES) as u64))
            .fetch(&self.readers);
        self.checked_read(row::log_page(rows, explain)).await
    }

    async fn log_state(&self, name: &LogName) -> Result<Option<LogState>, StoreError> {
        const STATE: &str = "SELECT name, id, first, next, bytes, appended_at FROM rockbot_logs \
             WHERE name = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
        let row = sqlx::query_as(STATE)
            .bind(name.as_str())
            .bind(self.clock.now().as_millis())
            .fetch_optional(&self.readers);
        let row: Option<LogRow> = self.checked_read(row.map(|row| row.map_err(explain))).await?;
        row.map(row::log_state).transpose()
    }

    async fn log_states(
        &self,
        prefix: &Prefix,
        after: Option<&LogName>,
        limit: usize,
    ) -> Result<Vec<LogState>, StoreError> {
        const LIST: &str = "SELECT name, id, first, next, bytes, appended_at FROM rockbot_logs \
             WHERE name > ?1 AND name < ?2 AND (expires_at IS NULL OR expires_at > ?3) \
             ORDER BY name LIMIT ?4";
        let rows = sqlx::query_as(LIST)
            .bind(prefix.start_after(after.map(LogName::as_key)))
            .bind(prefix.end())
            .bind(self.clock.now().as_millis())
            .bind(signed(limit.min(MAX_PAGE_ENTRIES) as u64))
            .fetch_all(&self.readers);
        let rows: Vec<LogRow> = self.checked_read(rows.map(|rows| rows.map_err(explain))).await?;
        rows.into_iter().map(row::log_state).collect()
    }
}

impl Log for SqliteStore {
    fn append<'a>(
        &'a self,
        name: &'a LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<Appended, StoreError>> {
        self.append_entries(name, at, entries, ttl).boxed()
    }

    fn read<'a>(
        &'a self,
        name: &'a LogName,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, StoreError>> {
        self.log_entries(name, from, limit).boxed()
    }

    fn state<'a>(
        &'a self,
        name: &'a LogName,
    ) -> BoxFuture<'a, Result<Option<LogState>, StoreError>> {
        self.log_state(name).boxed()
    }

    fn logs<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a LogName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogState>, StoreError>> {
        self.log_states(prefix, after, limit).boxed()
    }

    fn truncate<'a>(
        &'a self,
        name: &'a LogName,
        before: u64,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.writer.truncate_log(name.clone(), before).boxed()
    }

    fn delete<'a>(&'a self, name: &'a LogName) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.writer.delete_log(name.clone()).boxed()
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.writer.sweep_logs(limit).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Store::close(self)
    }
}
