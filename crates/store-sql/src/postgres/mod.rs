//! The PostgreSQL store, for processes on many machines.
//!
//! A change is one statement and one round trip; the server groups the commits of several connections.
//! Entries expire by the server's time, so that clients whose clocks differ agree on it.

mod appender;
mod extensions;
mod failure;
mod log;
mod log_statements;
mod schema;
mod statements;

use std::{future::Future, io, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Clock, Entry, Expected, Extension, Key, MAX_PAGE_ENTRIES, Prefix, Store, StoreError, Timestamp,
    Version, Write, Written, clock::millis,
};
use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    ConnectOptions, Connection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use self::{
    appender::Appender,
    failure::{explain, explain_change},
};
use crate::row::{self, EntryRow, KeyedRow};

/// The maximum number of connections of a store. More do not help, since the server groups commits, and
/// take long to open at once on a busy machine; a server allows 100 in total by default.
const MAX_CONNECTIONS: u32 = 8;
/// The timeout for a free or new connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// The idle time after which a connection is pinged before use: the server may have closed it.
const MAX_IDLE_WITHOUT_PING: Duration = Duration::from_secs(1);
/// The server's statement timeout.
const STATEMENT_TIMEOUT: &str = "10s";
/// The timeout for a response; longer than the statement timeout.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of attempts for a write whose conflicting entry disappears before it can be read.
const ATTEMPTS: usize = 8;
/// The longest time to live; longer ones would overflow on the server.
const MAX_TTL_MILLIS: i64 = i64::MAX / 2;

/// A store in the tables `rockbot_*` of a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    clock: Clock,
    pool: PgPool,
    appender: Appender,
}

impl PostgresStore {
    /// Connects, and creates the tables if they are missing, in the first schema of the
    /// connection's search path. Any number of processes may do so at once.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server cannot be reached within 15 s, [`StoreError::Unusable`]
    /// when it rejects the user, or the tables have a newer version.
    pub async fn connect(url: &SecretString, clock: Clock) -> Result<Self, StoreError> {
        let options = parse(url)
            .map_err(|reason| StoreError::Unusable { reason })?
            .application_name("rockbot")
            .options([("statement_timeout", STATEMENT_TIMEOUT)])
            .disable_statement_logging();
        // A pool reports only a timeout; a single connection reports the cause.
        let mut first = with_timeout(explain, options.connect()).await?;
        schema::prepare(&mut first).await?;
        // The connection is no longer needed, so a failed close has no effect.
        let _ = with_timeout(explain, first.close()).await;
        let pool = PgPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, usage| {
                Box::pin(async move {
                    Ok(usage.idle_for < MAX_IDLE_WITHOUT_PING || connection.ping().await.is_ok())
                })
            })
            .connect_lazy_with(options);
        let appender = Appender::start(pool.clone(), clock.clone());
        Ok(Self { clock, pool, appender })
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, StoreError> {
        self.pool.acquire().await.map_err(explain)
    }

    /// Returns the time of a manual clock; `None` selects the server's time.
    fn manual_now(&self) -> Option<i64> {
        self.clock.manual().map(Timestamp::as_millis)
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let mut connection = self.connection().await?;
        let query = sqlx::query_as(statements::GET).bind(key.as_str()).bind(self.manual_now());
        let row: Option<EntryRow> =
            with_timeout(explain, query.fetch_optional(&mut *connection)).await?;
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
        let reason = format!("the key {} changes too often; try again", write.key);
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
            .bind(self.manual_now())
            .bind(&*write.value)
            .bind(write.ttl.map(|ttl| millis(ttl).min(MAX_TTL_MILLIS)));
        if let Expected::Version(version) = write.expected {
            query = query.bind(version.number());
        }
        let mut connection = self.connection().await?;
        let row: Option<(i64,)> =
            with_timeout(explain_change, query.fetch_optional(&mut *connection)).await?;
        Ok(row.map(|(version,)| Version::from_number(version)))
    }

    async fn delete(&self, key: &Key, expected: Expected) -> Result<bool, StoreError> {
        let version = match expected {
            Expected::Anything => None,
            Expected::Version(version) => Some(version.number()),
            // Nothing can be removed; acquiring a connection reports a closed store.
            Expected::Absent => return self.connection().await.map(|_| false),
        };
        let query = sqlx::query(statements::REMOVE)
            .bind(key.as_str())
            .bind(self.manual_now())
            .bind(version);
        let mut connection = self.connection().await?;
        let done = with_timeout(explain_change, query.execute(&mut *connection)).await?;
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
            .bind(self.manual_now())
            .bind(prefix.end())
            .bind(count(limit.min(MAX_PAGE_ENTRIES)))
            .fetch(&mut *connection);
        let page = timeout(RESPONSE_TIMEOUT, row::page(rows, explain)).await;
        page.unwrap_or_else(|_| Err(explain(response_timeout())))
    }

    async fn sweep_expired(&self, limit: usize) -> Result<u64, StoreError> {
        let query = sqlx::query(statements::SWEEP).bind(count(limit)).bind(self.manual_now());
        let mut connection = self.connection().await?;
        let done = with_timeout(explain_change, query.execute(&mut *connection)).await?;
        Ok(done.rows_affected())
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        let mut connection = self.connection().await?;
        let query = sqlx::query_as(statements::NOW).bind(self.manual_now());
        let (now,): (i64,) = with_timeout(explain, query.fetch_one(&mut *connection)).await?;
        Ok(Timestamp::from_millis(now))
    }
}

/// Parses the address, without connecting. The error never contains the password.
fn parse(url: &SecretString) -> Result<PgConnectOptions, String> {
    url.expose_secret().parse().map_err(|error: sqlx::Error| {
        format!(
            "{error}; expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special \
             characters percent-encoded"
        )
    })
}

/// Awaits a query with [`RESPONSE_TIMEOUT`], and converts its error.
async fn with_timeout<T>(
    explain: fn(sqlx::Error) -> StoreError,
    query: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    let result = timeout(RESPONSE_TIMEOUT, query).await;
    result.unwrap_or_else(|_| Err(response_timeout())).map_err(explain)
}

fn response_timeout() -> sqlx::Error {
    let seconds = RESPONSE_TIMEOUT.as_secs();
    io::Error::new(io::ErrorKind::TimedOut, format!("no response within {seconds} s")).into()
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

    fn extend(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<Vec<Written>, StoreError>> {
        self.extend_all(extensions, ttl).boxed()
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.delete(key, expected).boxed()
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
        self.sweep_expired(limit).boxed()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.time().boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            self.appender.close().await;
            self.pool.close().await;
        }
        .boxed()
    }
}
