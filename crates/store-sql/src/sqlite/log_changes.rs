//! Changes of logs, in the transaction of a batch. The write lock of the file serializes them.

use rockbot_store::{Appended, LogId, LogName, LogPosition};

use super::writer::Transaction;
use crate::{
    append::Append,
    row::{self, signed, unsigned},
};

impl Transaction<'_> {
    pub(super) async fn append(&mut self, append: &Append) -> Result<Appended, sqlx::Error> {
        const INSERT: &str =
            "INSERT INTO rockbot_log_entries (log, number, value) VALUES (?1, ?2, ?3)";
        let advanced = self.advance(append).await?;
        let log = match advanced {
            Some(log) => log,
            None => match self.end(&append.name).await? {
                None if append.may_create() => self.create(append).await?,
                end => return Ok(Appended::Conflict { next: end.unwrap_or(LogPosition::START) }),
            },
        };
        for (number, entry) in (append.at.number..).zip(&append.entries) {
            sqlx::query(INSERT)
                .bind(log)
                .bind(signed(number))
                .bind(&**entry)
                .execute(&mut *self.connection)
                .await?;
        }
        Ok(append.done(LogId::from_number(log)))
    }

    /// Advances the next number, if it is that of the append, in its log. Returns the id of the log.
    async fn advance(&mut self, append: &Append) -> Result<Option<i64>, sqlx::Error> {
        const ADVANCE: &str = "UPDATE rockbot_logs \
             SET next = next + ?3, bytes = bytes + ?4, appended_at = ?5, expires_at = ?6 \
             WHERE name = ?1 AND next = ?2 AND (?7 IS NULL OR id = ?7) \
             AND (expires_at IS NULL OR expires_at > ?5) RETURNING id";
        let row: Option<(i64,)> = sqlx::query_as(ADVANCE)
            .bind(append.name.as_str())
            .bind(signed(append.at.number))
            .bind(signed(append.entries.len() as u64))
            .bind(signed(append.bytes as u64))
            .bind(self.now.as_millis())
            .bind(append.ttl.map(|ttl| self.now.after(ttl).as_millis()))
            .bind(append.at.log.map(LogId::number))
            .fetch_optional(&mut *self.connection)
            .await?;
        Ok(row.map(|(id,)| id))
    }

    /// Creates the log of the append in place of an expired one, and returns its id. SQLite would use the
    /// largest id again after its log was removed.
    async fn create(&mut self, append: &Append) -> Result<i64, sqlx::Error> {
        const TAKE_ID: &str = "UPDATE rockbot_counter \
             SET last = max(last, (SELECT coalesce(max(id), 0) FROM rockbot_logs)) + 1 \
             RETURNING last";
        const CREATE: &str = "INSERT INTO rockbot_logs \
             (id, name, first, next, bytes, appended_at, expires_at) \
             VALUES (?6, ?1, 1, ?2, ?3, ?4, ?5)";
        self.remove_log(&append.name).await?;
        let (id,): (i64,) = sqlx::query_as(TAKE_ID).fetch_one(&mut *self.connection).await?;
        sqlx::query(CREATE)
            .bind(append.name.as_str())
            .bind(signed(1 + append.entries.len() as u64))
            .bind(signed(append.bytes as u64))
            .bind(self.now.as_millis())
            .bind(append.ttl.map(|ttl| self.now.after(ttl).as_millis()))
            .bind(id)
            .execute(&mut *self.connection)
            .await?;
        Ok(id)
    }

    /// Returns the position of the next entry of a log that exists.
    async fn end(&mut self, name: &LogName) -> Result<Option<LogPosition>, sqlx::Error> {
        const END: &str = "SELECT id, next FROM rockbot_logs \
             WHERE name = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
        let row: Option<(i64, i64)> = sqlx::query_as(END)
            .bind(name.as_str())
            .bind(self.now.as_millis())
            .fetch_optional(&mut *self.connection)
            .await?;
        Ok(row.map(row::log_position))
    }

    pub(super) async fn truncate_log(
        &mut self,
        name: &LogName,
        before: u64,
    ) -> Result<u64, sqlx::Error> {
        const FIND: &str = "SELECT id FROM rockbot_logs \
             WHERE name = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
        const SIZE: &str = "SELECT count(*), coalesce(sum(length(value)), 0) \
             FROM rockbot_log_entries WHERE log = ?1 AND number < ?2";
        const TRUNCATE: &str = "DELETE FROM rockbot_log_entries WHERE log = ?1 AND number < ?2";
        const UPDATE: &str = "UPDATE rockbot_logs SET first = first + ?2, bytes = bytes - ?3 \
             WHERE id = ?1";
        let connection = &mut *self.connection;
        let log: Option<(i64,)> = sqlx::query_as(FIND)
            .bind(name.as_str())
            .bind(self.now.as_millis())
            .fetch_optional(&mut *connection)
            .await?;
        let Some((log,)) = log else { return Ok(0) };
        let (count, bytes): (i64, i64) =
            sqlx::query_as(SIZE).bind(log).bind(signed(before)).fetch_one(&mut *connection).await?;
        sqlx::query(TRUNCATE).bind(log).bind(signed(before)).execute(&mut *connection).await?;
        sqlx::query(UPDATE).bind(log).bind(count).bind(bytes).execute(connection).await?;
        Ok(unsigned(count))
    }

    /// Removes a log, and returns whether it existed and had not expired.
    pub(super) async fn remove_log(&mut self, name: &LogName) -> Result<bool, sqlx::Error> {
        const REMOVE: &str = "DELETE FROM rockbot_logs WHERE name = ?1 \
             RETURNING id, expires_at IS NULL OR expires_at > ?2";
        const REMOVE_ENTRIES: &str = "DELETE FROM rockbot_log_entries WHERE log = ?1";
        let row: Option<(i64, bool)> = sqlx::query_as(REMOVE)
            .bind(name.as_str())
            .bind(self.now.as_millis())
            .fetch_optional(&mut *self.connection)
            .await?;
        let Some((log, existed)) = row else { return Ok(false) };
        sqlx::query(REMOVE_ENTRIES).bind(log).execute(&mut *self.connection).await?;
        Ok(existed)
    }

    pub(super) async fn sweep_logs(&mut self, limit: usize) -> Result<u64, sqlx::Error> {
        const SWEEP_ENTRIES: &str = "DELETE FROM rockbot_log_entries WHERE rowid IN (\
             SELECT entry.rowid FROM rockbot_logs AS log \
             CROSS JOIN rockbot_log_entries AS entry ON entry.log = log.id \
             WHERE log.expires_at <= ?1 LIMIT ?2)";
        const SWEEP_LOGS: &str = "DELETE FROM rockbot_logs WHERE id IN (\
             SELECT id FROM rockbot_logs WHERE expires_at <= ?1 AND NOT EXISTS (\
             SELECT 1 FROM rockbot_log_entries WHERE log = rockbot_logs.id) LIMIT ?2)";
        let mut swept = 0;
        for statement in [SWEEP_ENTRIES, SWEEP_LOGS] {
            let done = sqlx::query(statement)
                .bind(self.now.as_millis())
                .bind(signed((limit as u64).saturating_sub(swept)))
                .execute(&mut *self.connection)
                .await?;
            swept += done.rows_affected();
        }
        Ok(swept)
    }
}
