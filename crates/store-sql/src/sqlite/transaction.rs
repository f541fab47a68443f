//! The transaction of a batch: changes of entries.

use std::time::Duration;

use rockbot_store::{Entry, Expected, Extension, Key, Timestamp, Version, Write, Written};
use sqlx::SqliteConnection;

use crate::row::{self, EntryRow};

/// The transaction of a batch.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a mut SqliteConnection,
    pub(super) now: Timestamp,
    last_version: i64,
}

impl<'a> Transaction<'a> {
    /// Acquires the write lock of the file, and reserves this many versions.
    pub(super) async fn begin(
        connection: &'a mut SqliteConnection,
        now: Timestamp,
        writes: usize,
    ) -> Result<Self, sqlx::Error> {
        const TAKE_VERSIONS: &str = "UPDATE rockbot_counter SET last = last + ?1 RETURNING last";
        let writes = i64::try_from(writes).unwrap_or(i64::MAX);
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        if writes == 0 {
            return Ok(Self { connection, now, last_version: 0 });
        }
        let (last,): (i64,) =
            sqlx::query_as(TAKE_VERSIONS).bind(writes).fetch_one(&mut *connection).await?;
        Ok(Self { connection, now, last_version: last - writes })
    }

    pub(super) async fn write(&mut self, write: &Write) -> Result<Written, sqlx::Error> {
        const PUT: &str = "INSERT INTO rockbot_entries (key, value, version, expires_at) \
             VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE \
             SET value = excluded.value, version = excluded.version, \
             expires_at = excluded.expires_at";
        const PUT_IF_ABSENT: &str = "INSERT INTO rockbot_entries (key, value, version, expires_at) \
             VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE \
             SET value = excluded.value, version = excluded.version, \
             expires_at = excluded.expires_at \
             WHERE rockbot_entries.expires_at <= ?5";
        const PUT_IF_VERSION: &str = "UPDATE rockbot_entries \
             SET value = ?2, version = ?3, expires_at = ?4 \
             WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?5) AND version = ?6";
        self.last_version += 1;
        let version = Version::from_number(self.last_version);
        let (statement, now, expected) = match write.expected {
            Expected::Anything => (PUT, None, None),
            Expected::Absent => (PUT_IF_ABSENT, Some(self.now), None),
            Expected::Version(version) => (PUT_IF_VERSION, Some(self.now), Some(version)),
        };
        let mut query = sqlx::query(statement)
            .bind(write.key.as_str())
            .bind(&*write.value)
            .bind(version.number())
            .bind(write.ttl.map(|ttl| self.now.after(ttl).as_millis()));
        if let Some(now) = now {
            query = query.bind(now.as_millis());
        }
        if let Some(expected) = expected {
            query = query.bind(expected.number());
        }
        match query.execute(&mut *self.connection).await?.rows_affected() {
            0 => Ok(Written::Conflict(self.read(&write.key).await?)),
            _ => Ok(Written::Done(version)),
        }
    }

    pub(super) async fn extend(
        &mut self,
        extensions: &[Extension],
        ttl: Duration,
    ) -> Result<Vec<Written>, sqlx::Error> {
        const EXTEND: &str = "UPDATE rockbot_entries SET version = ?2, expires_at = ?3 \
             WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?4) AND version = ?5";
        let mut outcomes = Vec::with_capacity(extensions.len());
        for Extension { key, version: expected } in extensions {
            self.last_version += 1;
            let version = Version::from_number(self.last_version);
            let query = sqlx::query(EXTEND)
                .bind(key.as_str())
                .bind(version.number())
                .bind(self.now.after(ttl).as_millis())
                .bind(self.now.as_millis())
                .bind(expected.number());
            outcomes.push(match query.execute(&mut *self.connection).await?.rows_affected() {
                0 => Written::Conflict(self.read(key).await?),
                _ => Written::Done(version),
            });
        }
        Ok(outcomes)
    }

    pub(super) async fn remove(
        &mut self,
        key: &Key,
        expected: Expected,
    ) -> Result<bool, sqlx::Error> {
        const REMOVE: &str = "DELETE FROM rockbot_entries WHERE key = ?1 \
             AND (expires_at IS NULL OR expires_at > ?2) AND (?3 IS NULL OR version = ?3)";
        let version = match expected {
            Expected::Anything => None,
            Expected::Version(version) => Some(version.number()),
            Expected::Absent => return Ok(false),
        };
        let query = sqlx::query(REMOVE).bind(key.as_str()).bind(self.now.as_millis()).bind(version);
        Ok(query.execute(&mut *self.connection).await?.rows_affected() > 0)
    }

    pub(super) async fn sweep(&mut self, limit: usize) -> Result<u64, sqlx::Error> {
        const SWEEP: &str = "DELETE FROM rockbot_entries WHERE key IN (\
             SELECT key FROM rockbot_entries WHERE expires_at <= ?1 LIMIT ?2)";
        let query = sqlx::query(SWEEP)
            .bind(self.now.as_millis())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        Ok(query.execute(&mut *self.connection).await?.rows_affected())
    }

    async fn read(&mut self, key: &Key) -> Result<Option<Entry>, sqlx::Error> {
        const GET: &str = "SELECT value, version, expires_at FROM rockbot_entries \
             WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
        let row: Option<EntryRow> = sqlx::query_as(GET)
            .bind(key.as_str())
            .bind(self.now.as_millis())
            .fetch_optional(&mut *self.connection)
            .await?;
        Ok(row.map(row::entry))
    }

    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        sqlx::query("COMMIT").execute(self.connection).await.map(drop)
    }
}
