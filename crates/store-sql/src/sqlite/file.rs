//! The file: created, recognised, and given its tables.

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

use super::failure::{explain, is_busy};
use rockbot_store::StoreError;

/// "RkBt" in ASCII: how a file says in its header whose it is.
const APPLICATION_ID: i64 = 0x526b_4274;
/// The version of the tables below.
const SCHEMA: i64 = 1;
/// How long to wait for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two attempts at what SQLite itself does not wait for.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Values may be large: few of them are kept ready while a page is read.
const ROWS_READY: usize = 4;

// The version of an entry comes from the one row of rockbot_counter.
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

/// Makes sure that the file is there and is ours, and returns how to connect to it.
pub(super) async fn prepare(path: &Path) -> Result<SqliteConnectOptions, StoreError> {
    let owned = path.to_owned();
    let created = tokio::task::spawn_blocking(move || create(&owned)).await;
    created.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(|error| {
        StoreError::Unusable {
            reason: format!("{} can't be opened or created: {error}", path.display()),
        }
    })?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(ROWS_READY)
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(explain)?;
    let outcome = claim(&mut connection).await;
    // A failed close leaves nothing behind that the end of the connection does not clean up.
    let _ = connection.close().await;
    outcome.map_err(|error| name_file(error, path)).map(|()| options)
}

/// The file is for this user alone; SQLite gives the files beside it the same mode.
fn create(path: &Path) -> io::Result<()> {
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    if folder != PathBuf::new() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map(drop)
}

/// Recognises our file by its header, and makes an empty file ours. Nothing is written to a file
/// of somebody else.
async fn claim(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    if is_ours(connection).await? {
        return Ok(());
    }
    enter_wal_mode(connection).await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await.map_err(explain)?;
    // Another process may have been faster.
    if !is_ours(connection).await? {
        sqlx::raw_sql(CREATE).execute(&mut *connection).await.map_err(explain)?;
    }
    sqlx::query("COMMIT").execute(connection).await.map_err(explain)?;
    Ok(())
}

/// Whether the file has our tables; an empty file has not.
async fn is_ours(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    let unusable = |reason: String| Err(StoreError::Unusable { reason });
    match header(connection).await.map_err(explain)? {
        (APPLICATION_ID, SCHEMA, _) => Ok(true),
        (APPLICATION_ID, newer, _) => unusable(format!(
            "its tables have version {newer} and this program knows {SCHEMA}; run the newer \
             program, or choose another path"
        )),
        (0, 0, 0) => Ok(false),
        _ => unusable("the file belongs to another program; choose another path".to_owned()),
    }
}

/// Application, version, and number of tables.
async fn header(connection: &mut SqliteConnection) -> Result<(i64, i64, i64), sqlx::Error> {
    const HEADER: &str = "SELECT (SELECT application_id FROM pragma_application_id), \
         (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)";
    sqlx::query_as(HEADER).fetch_one(connection).await
}

/// The mode stays with the file. SQLite does not wait for other processes here, so we do.
async fn enter_wal_mode(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let outcome = sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *connection).await;
        match outcome {
            Err(error) if is_busy(&error) && Instant::now() < deadline => sleep(BUSY_PAUSE).await,
            outcome => return outcome.map(drop).map_err(explain),
        }
    }
}

fn name_file(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Unusable { reason } => {
            StoreError::Unusable { reason: format!("{}: {reason}", path.display()) }
        }
        other => other,
    }
}
