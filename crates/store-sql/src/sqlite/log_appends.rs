//! Appends to logs, in the transaction of a batch: appends to several logs share their statements, because
//! each statement is a round trip to the thread of the connection.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use bytes::Bytes;
use rockbot_store::{Appended, LogId, LogName, LogPosition};

use super::transaction::Transaction;
use crate::{
    append::Append,
    row::{self, signed},
};

/// Sizes of statements are powers of two, so that few of them are prepared. This is the exponent of the
/// largest.
const MAX_EXPONENT: usize = 6;
/// Maximum number of logs or entries of a statement.
const MAX_ROWS: usize = 1 << MAX_EXPONENT;
/// Maximum size of the entries of a group in bytes, unless it has only one append.
const MAX_GROUP_BYTES: usize = 1024 * 1024;

/// A statement for each number of rows.
type Statements = [String; MAX_EXPONENT + 1];

/// Parameters: now; of each append: name, number, number of entries, size, expiry, id of the log or null. At
/// most one append for each log.
static ADVANCE: LazyLock<Statements> = LazyLock::new(|| {
    statements(1, 6, |rows| {
        format!(
            "WITH append (name, at, entries, bytes, expires_at, log) AS (VALUES {rows}) \
             UPDATE rockbot_logs AS log \
             SET next = log.next + append.entries, bytes = log.bytes + append.bytes, \
             appended_at = ?1, expires_at = append.expires_at FROM append \
             WHERE log.name = append.name AND log.next = append.at \
             AND (append.log IS NULL OR log.id = append.log) \
             AND (log.expires_at IS NULL OR log.expires_at > ?1) RETURNING name, id"
        )
    })
});

/// Parameters of each entry: id of its log, number, value.
static INSERT: LazyLock<Statements> = LazyLock::new(|| {
    statements(0, 3, |rows| {
        format!("INSERT INTO rockbot_log_entries (log, number, value) VALUES {rows}")
    })
});

/// Returns the statements with 1, 2, 4 … rows of this many parameters, after `before` others.
fn statements(before: usize, columns: usize, statement: impl Fn(&str) -> String) -> Statements {
    std::array::from_fn(|exponent| {
        let row = |row: usize| {
            let first = before + 1 + row * columns;
            let columns: Vec<_> = (first..first + columns).map(|one| format!("?{one}")).collect();
            format!("({})", columns.join(", "))
        };
        let rows: Vec<_> = (0..1 << exponent).map(row).collect();
        statement(&rows.join(", "))
    })
}

/// Divides rows into those of one statement each, and returns them with the statement.
fn chunks<'a, T>(
    mut rows: &'a [T],
    statements: &'static Statements,
) -> impl Iterator<Item = (&'static str, &'a [T])> {
    std::iter::from_fn(move || {
        let exponent = rows.len().checked_ilog2()?.min(MAX_EXPONENT as u32) as usize;
        let (chunk, others) = rows.split_at(1 << exponent);
        rows = others;
        Some((statements[exponent].as_str(), chunk))
    })
}

/// Returns how many of the first appends can be made together: at least 1.
pub(super) fn group_size<'a>(appends: impl Iterator<Item = &'a Append>) -> usize {
    let (mut names, mut entries, mut bytes) = (HashSet::new(), 0, 0);
    let fits = |append: &&'a Append| {
        entries += append.entries.len();
        bytes += append.bytes;
        names.insert(&append.name) && entries <= MAX_ROWS && bytes <= MAX_GROUP_BYTES
    };
    appends.take_while(fits).count().max(1)
}

impl Transaction<'_> {
    /// Makes appends to different logs, and returns their outcomes in order.
    pub(super) async fn append(
        &mut self,
        appends: &[&Append],
    ) -> Result<Vec<Appended>, sqlx::Error> {
        let advanced = self.advance(appends).await?;
        let (mut outcomes, mut entries) = (Vec::with_capacity(appends.len()), Vec::new());
        for append in appends {
            let log = match advanced.get(append.name.as_str()) {
                Some(log) => *log,
                None => match self.end(&append.name).await? {
                    None if append.may_create() => self.create(append).await?,
                    end => {
                        let next = end.unwrap_or(LogPosition::START);
                        outcomes.push(Appended::Conflict { next });
                        continue;
                    }
                },
            };
            let numbered = (append.at.number..).zip(&append.entries);
            entries.extend(numbered.map(|(number, entry)| (log, number, entry)));
            outcomes.push(append.done(LogId::from_number(log)));
        }
        self.insert(&entries).await?;
        Ok(outcomes)
    }

    async fn insert(&mut self, entries: &[(i64, u64, &Bytes)]) -> Result<(), sqlx::Error> {
        for (statement, entries) in chunks(entries, &INSERT) {
            let mut query = sqlx::query(statement);
            for (log, number, entry) in entries {
                query = query.bind(log).bind(signed(*number)).bind(&***entry);
            }
            query.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Advances the next numbers of the logs where they are those of the appends. Returns the ids of these logs.
    async fn advance(&mut self, appends: &[&Append]) -> Result<HashMap<String, i64>, sqlx::Error> {
        let mut advanced = HashMap::with_capacity(appends.len());
        for (statement, appends) in chunks(appends, &ADVANCE) {
            let mut query = sqlx::query_as(statement).bind(self.now.as_millis());
            for append in appends {
                query = query
                    .bind(append.name.as_str())
                    .bind(signed(append.at.number))
                    .bind(signed(append.entries.len() as u64))
                    .bind(signed(append.bytes as u64))
                    .bind(append.ttl.map(|ttl| self.now.after(ttl).as_millis()))
                    .bind(append.at.log.map(LogId::number));
            }
            advanced.extend(query.fetch_all(&mut *self.connection).await?);
        }
        Ok(advanced)
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
}
