//! The baseline: one insert for each entry, in its own transaction, that fails unless its number is the
//! next one.

use std::path::Path;

use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{Append, boxed, entry};

/// The connections of the PostgreSQL store.
const CONNECTIONS: u32 = 8;

const INSERT: &str = "INSERT INTO fenced_entries (log, number, value) SELECT $1, $2, $3 \
     WHERE coalesce((SELECT max(number) FROM fenced_entries WHERE log = $1), 0) = $2 - 1";

/// Inserts over one connection, as SQLite has one writer.
pub(crate) async fn sqlite(path: &Path) -> Append {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool: SqlitePool = SqlitePoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .expect("a database");
    sqlx::raw_sql(
        "CREATE TABLE fenced_entries (log TEXT, number INTEGER, value BLOB, UNIQUE (log, number))",
    )
    .execute(&pool)
    .await
    .expect("a table");
    boxed(move |name, number| {
        let pool = pool.clone();
        async move {
            let insert = sqlx::query(INSERT)
                .bind(name.as_str().to_owned())
                .bind(i64::try_from(number).expect("a small number"))
                .bind(entry().to_vec());
            let done = insert.execute(&pool).await.expect("inserted");
            assert_eq!(done.rows_affected(), 1);
        }
    })
}

pub(crate) async fn postgres(url: &str) -> Append {
    let pool: PgPool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .test_before_acquire(false)
        .connect(url)
        .await
        .expect("a database");
    sqlx::raw_sql(
        "DROP TABLE IF EXISTS fenced_entries; \
         CREATE TABLE fenced_entries (log text COLLATE \"C\", number bigint, value bytea, \
         PRIMARY KEY (log, number))",
    )
    .execute(&pool)
    .await
    .expect("a table");
    boxed(move |name, number| {
        let pool = pool.clone();
        async move {
            let insert = sqlx::query(INSERT)
                .bind(name.as_str())
                .bind(i64::try_from(number).expect("a small number"))
                .bind(entry().to_vec());
            let done = insert.execute(&pool).await.expect("inserted");
            assert_eq!(done.rows_affected(), 1);
        }
    })
}
