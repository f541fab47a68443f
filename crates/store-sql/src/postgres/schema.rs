//! Creation of the tables by the first process.

use sqlx::{Connection, PgConnection};

use super::{failure::explain, with_timeout};
use rockbot_store::StoreError;

/// The schema version.
const SCHEMA: i64 = 1;

// Keys are ordered by their bytes, independently of the locale of the database.
const CREATE: &str = r#"
    CREATE TABLE rockbot_entries (
        key text COLLATE "C" PRIMARY KEY,
        value bytea NOT NULL,
        version bigint NOT NULL,
        expires_at bigint
    );
    CREATE INDEX rockbot_expiry ON rockbot_entries (expires_at) WHERE expires_at IS NOT NULL;
    CREATE SEQUENCE rockbot_version;
    CREATE TABLE rockbot_schema (version bigint NOT NULL);
    INSERT INTO rockbot_schema VALUES (1);
"#;

// Added later, without a new schema version: programs without logs ignore these tables. Each append updates
// the row of its log; free space in the pages keeps these updates out of the indexes.
const CREATE_LOGS: &str = r#"
    CREATE TABLE IF NOT EXISTS rockbot_logs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" UNIQUE NOT NULL,
        first bigint NOT NULL,
        next bigint NOT NULL,
        bytes bigint NOT NULL,
        appended_at bigint NOT NULL,
        expires_at bigint
    ) WITH (fillfactor = 50);
    CREATE TABLE IF NOT EXISTS rockbot_log_entries (
        log bigint NOT NULL,
        number bigint NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (log, number)
    );
"#;

/// Creates missing tables, and validates the schema version.
pub(super) async fn prepare(connection: &mut PgConnection) -> Result<(), StoreError> {
    let has_version = with_timeout(explain, version(connection)).await?.is_some();
    if !has_version || !with_timeout(explain, has_logs(connection)).await? {
        with_timeout(explain, create(connection)).await?;
    }
    match with_timeout(explain, version(connection)).await? {
        Some(SCHEMA) => Ok(()),
        found => Err(StoreError::Unusable {
            reason: format!(
                "the tables rockbot_* have version {}, but this program supports {SCHEMA}; run the \
                 newer program, or choose another database",
                found.unwrap_or_default()
            ),
        }),
    }
}

/// Creates missing tables, unless another process has. The lock serializes processes and ends with the
/// connection. It is acquired before the transaction, which may not see tables that appear while it waits.
async fn create(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_lock(1382761076, 0)").execute(&mut *connection).await?;
    let mut transaction = connection.begin().await?;
    if version(&mut transaction).await?.is_none() {
        sqlx::raw_sql(CREATE).execute(&mut *transaction).await?;
    }
    if !has_logs(&mut transaction).await? {
        sqlx::raw_sql(CREATE_LOGS).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

async fn has_logs(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let (exists,): (bool,) =
        sqlx::query_as("SELECT to_regclass('rockbot_log_entries') IS NOT NULL")
            .fetch_one(connection)
            .await?;
    Ok(exists)
}

async fn version(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let (exists,): (bool,) = sqlx::query_as("SELECT to_regclass('rockbot_schema') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(None);
    }
    let row: (i64,) =
        sqlx::query_as("SELECT max(version) FROM rockbot_schema").fetch_one(connection).await?;
    Ok(Some(row.0))
}
