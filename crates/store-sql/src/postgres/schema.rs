//! The tables, made by whoever comes first.

use sqlx::{Connection, PgConnection};

use super::{answered, failure::explain};
use rockbot_store::StoreError;

/// The version of the tables below.
const SCHEMA: i64 = 1;

// Keys are ordered by their bytes, whatever the language of the database.
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

/// Makes sure that the tables are there, and that this program knows them.
pub(super) async fn prepare(connection: &mut PgConnection) -> Result<(), StoreError> {
    if answered(explain, version(connection)).await?.is_none() {
        answered(explain, create(connection)).await?;
    }
    match answered(explain, version(connection)).await? {
        Some(SCHEMA) => Ok(()),
        found => Err(StoreError::Unusable {
            reason: format!(
                "the tables rockbot_* have version {} and this program knows {SCHEMA}; run the \
                 newer program, or choose another database",
                found.unwrap_or_default()
            ),
        }),
    }
}

/// Creates the tables, one process after the other; whoever comes later finds them. The lock is
/// taken before the transaction begins, because a transaction may not see tables that appeared
/// while it waited, and goes with the connection.
async fn create(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_lock(1382761076, 0)").execute(&mut *connection).await?;
    let mut transaction = connection.begin().await?;
    if version(&mut transaction).await?.is_none() {
        sqlx::raw_sql(CREATE).execute(&mut *transaction).await?;
    }
    transaction.commit().await
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
