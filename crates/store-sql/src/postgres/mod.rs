//! A store in PostgreSQL, for the processes of many machines.
//!
//! A change is one statement and one round trip; the server itself commits those of several
//! connections together. Its time is the server's, so that clients whose clocks disagree agree on
//! what is expired.

mod failure;
mod schema;
mod statements;

use std::{future::Future, io, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Clock, Entry, Expected, Key, MAX_PAGE_ENTRIES, Prefix, Store, StoreError, Timestamp, Version,
    Write, Written, clock::millis,
};
use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    ConnectOptions, Connection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use self::failure::{explain, explain_change};
use crate::row::{self, EntryRow, KeyedRow};

/// Most connections of one store. More would share each of the server's commits, and take long to
/// open all at once on a busy machine; a server has 100 for everybody unless it is told otherwise.
const CONNECTIONS: u32 = 8;
/// How long to wait for one of them, and for a new one to be opened.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that was not used for that long is tried before it is used: the server may have
/// gone meanwhile.
const MAY_BE_STALE: Duration = Duration::from_secs(1);
/// When the server gives a statement up.
const STATEMENT_TIMEOUT: &str = "10s";
/// How long to wait for the server's word: longer than a statement may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a write is tried when what was in its way is gone before it can be read.
const ATTEMPTS: usize = 8;
/// Longer times to live would not fit into the server's arithmetic.
const MAX_TTL_MILLIS: i64 = i64::MAX / 2;

/// A store in the tables `rockbot_*` of a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    clock: Clock,
    pool: PgPool,
}

impl PostgresStore {
    /// Connects, and creates the tables if they are missing, in the first schema of the
    /// connection's search path. Any number of processes may do so at once.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server can't be reached within 15 seconds,
    /// [`StoreError::Unusable`] when it refuses us, or a newer version made the tables.
    pub async fn connect(url: &SecretString, clock: Clock) -> Result<Self, StoreError> {
        let options = parse(url)
            .map_err(|reason| StoreError::Unusable { reason })?
            .application_name("rockbot")
            .options([("statement_timeout", STATEMENT_TIMEOUT)])
            .disable_statement_logging();
        // A pool says only that its time is over; the first connection says what is wrong.
        let mut first = answered(explain, options.connect()).await?;
        schema::prepare(&mut first).await?;
        // It has done its work; a failed farewell costs nothing.
        let _ = answered(explain, first.close()).await;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, usage| {
                Box::pin(async move {
                    Ok(usage.idle_for < MAY_BE_STALE || connection.ping().await.is_ok())
                })
            })
            .connect_lazy_with(options);
        Ok(Self { clock, pool })
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, StoreError> {
        self.pool.acquire().await.map_err(explain)
    }

    /// The moment that a test chose; `None` stands for the server's time.
    fn chosen_now(&self) -> Option<i64> {
        self.clock.manual().map(Timestamp::as_millis)
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let mut connection = self.connection().await?;
        let query = sqlx::query_as(statements::GET).bind(key.as_str()).bind(self.chosen_now());
        let row: Option<EntryRow> =
            answered(explain, query.fetch_optional(&mut *connection)).await?;
        Ok(row.map(row::entry))
    }

    async fn put(&self, write: Write) -> Result<Written, StoreError> {
        write.check_size()?;
        for _ in 0..ATTEMPTS {
            if let Some(version) = self.try_put(&write).await? {
                return Ok(Written::Done(version));
            }
            let present = self.read(&write.key).await?;
            if !write.expected.is_met_by(present.as_ref()) {
                return Ok(Written::Conflict(present));
            }
        }
        let reason = format!("{} changes too often; try again", write.key);
        Err(StoreError::Unavailable { reason })
    }

    async fn try_put(&self, write: &Write) -> Result<Option<Version>, StoreError> {
        let statement = match write.expected {
            Expected::Anything => statements::PUT,
            Expected::Absent => statements::PUT_IF_ABSENT,
            Expected::Version(_) => statements::PUT_IF_VERSION,
        };
        let mut query = sqlx::query_as(statement)
            .bind(write.key.as_str())
            .bind(self.chosen_now())
            .bind(&*write.value)
            .bind(write.ttl.map(|ttl| millis(ttl).min(MAX_TTL_MILLIS)));
        if let Expected::Version(version) = write.expected {
            query = query.bind(version.number());
        }
        let mut connection = self.connection().await?;
        let row: Option<(i64,)> =
            answered(explain_change, query.fetch_optional(&mut *connection)).await?;
        Ok(row.map(|(version,)| Version::from_number(version)))
    }

    async fn take(&self, key: &Key, expected: Expected) -> Result<bool, StoreError> {
        let version = match expected {
            Expected::Anything => None,
            Expected::Version(version) => Some(version.number()),
            // What is absent can't be removed; the connection tells whether the store is open.
            Expected::Absent => return self.connection().await.map(|_| false),
        };
        let query = sqlx::query(statements::REMOVE)
            .bind(key.as_str())
            .bind(self.chosen_now())
            .bind(version);
        let mut connection = self.connection().await?;
        let done = answered(explain_change, query.execute(&mut *connection)).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn page(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<(Key, Entry)>, StoreError> {
        let mut connection = self.connection().await?;
        let rows = sqlx::query_as::<_, KeyedRow>(statements::LIST)
            .bind(prefix.start_after(after))
            .bind(self.chosen_now())
            .bind(prefix.end())
            .bind(count(limit.min(MAX_PAGE_ENTRIES)))
            .fetch(&mut *connection);
        let page = timeout(ANSWER_TIMEOUT, row::page(rows, explain)).await;
        page.unwrap_or_else(|_| Err(explain(no_answer())))
    }

    async fn forget_expired(&self, limit: usize) -> Result<u64, StoreError> {
        let query = sqlx::query(statements::SWEEP).bind(count(limit)).bind(self.chosen_now());
        let mut connection = self.connection().await?;
        let done = answered(explain_change, query.execute(&mut *connection)).await?;
        Ok(done.rows_affected())
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        let mut connection = self.connection().await?;
        let query = sqlx::query_as(statements::NOW).bind(self.chosen_now());
        let (now,): (i64,) = answered(explain, query.fetch_one(&mut *connection)).await?;
        Ok(Timestamp::from_millis(now))
    }
}

/// Reads the address, without connecting. The reason never holds the password.
fn parse(url: &SecretString) -> Result<PgConnectOptions, String> {
    url.expose_secret().parse().map_err(|error: sqlx::Error| {
        format!(
            "{error}; expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special \
             characters percent-encoded"
        )
    })
}

/// Waits for the server with a limit.
async fn answered<T>(
    explain: fn(sqlx::Error) -> StoreError,
    query: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    let answer = timeout(ANSWER_TIMEOUT, query).await;
    answer.unwrap_or_else(|_| Err(no_answer())).map_err(explain)
}

fn no_answer() -> sqlx::Error {
    let seconds = ANSWER_TIMEOUT.as_secs();
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {seconds} s")).into()
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl Store for PostgresStore {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.read(key).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.put(write).boxed()
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.take(key, expected).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        self.page(prefix, after, limit).boxed()
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.forget_expired(limit).boxed()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.time().boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.pool.close().boxed()
    }
}
