//! Creation and validation of the database file.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions,
    sqlite::SqliteSynchronous,
};
use tokio::time::{Instant, sleep};

use super::{
    failure::{explain, is_busy},
    presence::Presence,
};
use rockbot_store::StoreError;

/// "RkBt" in ASCII; the application id in the header of the file.
const APPLICATION_ID: i64 = 0x526b_4274;
/// The schema version.
const SCHEMA: i64 = 1;
/// The timeout for the lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay between attempts where SQLite does not wait for a lock.
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(10);
/// The number of rows that are buffered while a page is read; small, since values may be large.
const ROW_BUFFER: usize = 4;

// Versions and the ids of logs are taken from the only row of rockbot_counter.
const CREATE: &str = "
    CREATE TABLE rockbot_entries (
        key TEXT PRIMARY KEY NOT NULL,
        value BLOB NOT NULL,
        version INTEGER NOT NULL,
        expires_at INTEGER
    );
    CREATE INDEX rockbot_expiry ON rockbot_entries (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE rockbot_counter (last INTEGER NOT NULL);
    INSERT INTO rockbot_counter VALUES (0);
    PRAGMA application_id = 1382761076;
    PRAGMA user_version = 1;
";

// Added later, without a new schema version: programs without logs ignore these tables. The entries are in
// order of arrival, so that appends to many logs write adjacent pages.
const CREATE_LOGS: &str = "
    CREATE TABLE IF NOT EXISTS rockbot_logs (
        id INTEGER PRIMARY KEY NOT NULL,
        name TEXT UNIQUE NOT NULL,
        first INTEGER NOT NULL,
        next INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        appended_at INTEGER NOT NULL,
        expires_at INTEGER
    );
    CREATE TABLE IF NOT EXISTS rockbot_log_entries (
        log INTEGER NOT NULL,
        number INTEGER NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (log, number)
    );
";

/// Creates or validates the file, and returns the connection options and the check of its presence.
pub(super) async fn prepare(path: &Path) -> Result<(SqliteConnectOptions, Presence), StoreError> {
    let unusable = |error: io::Error| StoreError::Unusable {
        reason: format!("cannot open or create {}: {error}", path.display()),
    };
    let owned = path.to_owned();
    let created = tokio::task::spawn_blocking(move || create(&owned)).await;
    created.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(unusable)?;
    let presence = Presence::of(path).await.map_err(unusable)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(ROW_BUFFER)
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(explain)?;
    let outcome = initialize(&mut connection).await;
    // A failed close has no effect: the connection ends anyway.
    let _ = connection.close().await;
    outcome.map_err(|error| with_path(error, path)).map(|()| (options, presence))
}

/// Creates the file, readable only by this user. SQLite gives its other files the same mode.
fn create(path: &Path) -> io::Result<()> {
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    if folder != PathBuf::new() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map(drop)
}

/// The tables of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    /// None: the file is empty.
    Missing,
    /// Those of an older program, without logs.
    WithoutLogs,
    /// All.
    Complete,
}

/// Validates the header, and creates missing tables. A file of another program is not changed.
async fn initialize(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    if find_tables(connection).await? == Tables::Complete {
        return Ok(());
    }
    enter_wal_mode(connection).await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await.map_err(explain)?;
    // Another process may have created them meanwhile.
    if find_tables(connection).await? == Tables::Missing {
        sqlx::raw_sql(CREATE).execute(&mut *connection).await.map_err(explain)?;
    }
    sqlx::raw_sql(CREATE_LOGS).execute(&mut *connection).await.map_err(explain)?;
    sqlx::query("COMMIT").execute(connection).await.map_err(explain)?;
    Ok(())
}

async fn find_tables(connection: &mut SqliteConnection) -> Result<Tables, StoreError> {
    let unusable = |reason: String| Err(StoreError::Unusable { reason });
    match header(connection).await.map_err(explain)? {
        (APPLICATION_ID, SCHEMA, _, 0) => Ok(Tables::WithoutLogs),
        (APPLICATION_ID, SCHEMA, _, _) => Ok(Tables::Complete),
        (APPLICATION_ID, newer, _, _) => unusable(format!(
            "its tables have version {newer}, but this program supports {SCHEMA}; run the newer \
             program, or choose another path"
        )),
        (0, 0, 0, _) => Ok(Tables::Missing),
        _ => unusable("the file belongs to another program; choose another path".to_owned()),
    }
}

/// Reads the application id, the schema version, the number of tables and that of tables of logs.
async fn header(connection: &mut SqliteConnection) -> Result<(i64, i64, i64, i64), sqlx::Error> {
    const HEADER: &str = "SELECT (SELECT application_id FROM pragma_application_id), \
         (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema), \
         (SELECT count(*) FROM sqlite_schema WHERE name = 'rockbot_log_entries')";
    sqlx::query_as(HEADER).fetch_one(connection).await
}

/// Enables WAL mode, which persists in the file. SQLite does not wait for locks here.
async fn enter_wal_mode(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let outcome = sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *connection).await;
        match outcome {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                sleep(BUSY_RETRY_DELAY).await;
            }
            outcome => return outcome.map(drop).map_err(explain),
        }
    }
}

/// Prefixes the reason with the path.
fn with_path(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Unusable { reason } => {
            StoreError::Unusable { reason: format!("{}: {reason}", path.display()) }
        }
        other => other,
    }
}
