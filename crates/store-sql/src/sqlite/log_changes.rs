//! Removal of logs and of their entries, in the transaction of a batch. The write lock of the file
//! serializes all changes.

use rockbot_store::LogName;

use super::transaction::Transaction;
use crate::row::{signed, unsigned};

impl Transaction<'_> {
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
