//! Logs in the database of a PostgreSQL store.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Appended, Log, LogEntry, LogName, LogPosition, LogState, MAX_PAGE_ENTRIES, Prefix, Store,
    StoreError,
};
use sqlx::Connection;
use tokio::time::timeout;

use super::{
    PostgresStore, RESPONSE_TIMEOUT, count,
    failure::{explain, explain_change},
    log_statements, response_timeout, with_timeout,
};
use crate::{
    append::Append,
    row::{self, LogEntryRow, LogRow, signed, unsigned},
};

impl PostgresStore {
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
        self.appender.append(append).await
    }

    async fn log_entries(
        &self,
        name: &LogName,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let mut connection = self.connection().await?;
        let rows = sqlx::query_as::<_, LogEntryRow>(log_statements::READ)
            .bind(self.manual_now())
            .bind(name.as_str())
            .bind(signed(from))
            .bind(count(limit.min(MAX_PAGE_ENTRIES)))
            .fetch(&mut *connection);
        let page = timeout(RESPONSE_TIMEOUT, row::log_page(rows, explain)).await;
        page.unwrap_or_else(|_| Err(explain(response_timeout())))
    }

    async fn log_state(&self, name: &LogName) -> Result<Option<LogState>, StoreError> {
        let mut connection = self.connection().await?;
        let query =
            sqlx::query_as(log_statements::STATE).bind(self.manual_now()).bind(name.as_str());
        let row: Option<LogRow> =
            with_timeout(explain, query.fetch_optional(&mut *connection)).await?;
        row.map(row::log_state).transpose()
    }

    async fn log_states(
        &self,
        prefix: &Prefix,
        after: Option<&LogName>,
        limit: usize,
    ) -> Result<Vec<LogState>, StoreError> {
        let mut connection = self.connection().await?;
        let query = sqlx::query_as(log_statements::LIST)
            .bind(self.manual_now())
            .bind(prefix.start_after(after.map(LogName::as_key)))
            .bind(prefix.end())
            .bind(count(limit.min(MAX_PAGE_ENTRIES)));
        let rows: Vec<LogRow> = with_timeout(explain, query.fetch_all(&mut *connection)).await?;
        rows.into_iter().map(row::log_state).collect()
    }

    async fn truncate_log(&self, name: &LogName, before: u64) -> Result<u64, StoreError> {
        let mut connection = self.connection().await?;
        let now = self.manual_now();
        let truncate = async {
            let mut transaction = connection.begin().await?;
            let lock = sqlx::query_as(log_statements::LOCK).bind(now).bind(name.as_str());
            let log: Option<(i64,)> = lock.fetch_optional(&mut *transaction).await?;
            let Some((log,)) = log else { return Ok(0) };
            let remove = sqlx::query_as(log_statements::TRUNCATE).bind(log).bind(signed(before));
            let (entries, bytes): (i64, i64) = remove.fetch_one(&mut *transaction).await?;
            let shrink = sqlx::query(log_statements::SHRINK).bind(log).bind(entries).bind(bytes);
            shrink.execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(unsigned(entries))
        };
        with_timeout(explain_change, truncate).await
    }

    async fn delete_log(&self, name: &LogName) -> Result<bool, StoreError> {
        let mut connection = self.connection().await?;
        let now = self.manual_now();
        let delete = async {
            let mut transaction = connection.begin().await?;
            let delete = sqlx::query_as(log_statements::DELETE).bind(now).bind(name.as_str());
            let log: Option<(i64, bool)> = delete.fetch_optional(&mut *transaction).await?;
            let Some((log, existed)) = log else { return Ok(false) };
            let delete = sqlx::query(log_statements::DELETE_ENTRIES).bind(log);
            delete.execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(existed)
        };
        with_timeout(explain_change, delete).await
    }

    async fn sweep_logs(&self, limit: usize) -> Result<u64, StoreError> {
        let mut connection = self.connection().await?;
        let mut swept = 0;
        for statement in [log_statements::SWEEP_ENTRIES, log_statements::SWEEP_LOGS] {
            let left = signed((limit as u64).saturating_sub(swept));
            let query = sqlx::query(statement).bind(self.manual_now()).bind(left);
            let done = with_timeout(explain_change, query.execute(&mut *connection)).await?;
            swept += done.rows_affected();
        }
        Ok(swept)
    }
}

impl Log for PostgresStore {
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
        self.truncate_log(name, before).boxed()
    }

    fn delete<'a>(&'a self, name: &'a LogName) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.delete_log(name).boxed()
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.sweep_logs(limit).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Store::close(self)
    }
}
