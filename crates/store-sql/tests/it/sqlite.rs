//! The SQLite store.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use crate::failed_appends::check_failed_appends;
use futures_util::FutureExt;
use rockbot_store::{Appended, Clock, LogPosition, ManualClock, Store, StoreError, Stores, Write};
use rockbot_store_sql::SqliteStore;
use rockbot_testkit::{
    StoreFixture,
    fixture::within_timeout,
    store_fixture::{Opener, expect_written, key, log_name},
};
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::task::JoinSet;

rockbot_testkit::store_conformance_tests!(crate::sqlite::fixture);
rockbot_testkit::durable_store_conformance_tests!(crate::sqlite::fixture);
rockbot_testkit::log_conformance_tests!(crate::sqlite::fixture);
rockbot_testkit::durable_log_conformance_tests!(crate::sqlite::fixture);

fn stores(database: SqliteStore) -> Stores {
    let database = Arc::new(database);
    Stores { store: database.clone(), log: database }
}

async fn fixture() -> StoreFixture {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let manual_clock = ManualClock::new();
    let clock = Clock::from(&manual_clock);
    // The closure, and with it the fixture, owns the folder.
    let open: Opener = Arc::new(move || {
        let (path, clock) = (folder.path().join("store.db"), clock.clone());
        async { stores(SqliteStore::open(path, clock).await.expect("opened")) }.boxed()
    });
    StoreFixture::new(manual_clock, open, Arc::new(|| async {}.boxed())).await
}

async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    within_timeout("the file to open", SqliteStore::open(path, Clock::System)).await
}

/// Opens a plain SQLite connection.
async fn raw_connection(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    options.connect().await.expect("connected")
}

/// Returns the reason why the file is unusable.
async fn unusable(path: &Path) -> String {
    match open(path).await {
        Err(StoreError::Unusable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn created_files_are_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/folder/store.db");
    let store = open(&path).await.expect("opened");
    expect_written(store.write(Write::new(key("a"), "")).await);
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(mode(&path.with_file_name(file)), 0o600, "{file}");
    }
    assert_eq!(mode(path.parent().expect("a folder")), 0o700);
    store.close().await;
}

/// Writes until the store notices that its file is gone.
async fn write_until_unavailable(store: &SqliteStore) -> String {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    within_timeout("an unavailable store", async {
        loop {
            ticks.tick().await;
            match store.write(Write::new(key("late"), "")).await {
                Ok(_) => {}
                Err(StoreError::Unavailable { reason }) => return reason,
                Err(other) => panic!("{other:?}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn store_without_its_file_is_unavailable() {
    for replaced in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let store = open(&path).await.expect("opened");
        expect_written(store.write(Write::new(key("a"), "")).await);
        for file in ["store.db", "store.db-wal", "store.db-shm"] {
            fs::remove_file(folder.path().join(file)).expect("removed");
        }
        let new = if replaced { Some(open(&path).await.expect("created")) } else { None };
        let reason = write_until_unavailable(&store).await;
        assert!(reason.contains("restart the process"), "{reason}");
        let read = store.get(&key("a")).await;
        assert_eq!(read, Err(StoreError::Unavailable { reason }), "an entry of the removed file");
        if let Some(new) = new {
            expect_written(new.write(Write::new(key("b"), "")).await);
            store.close().await;
            expect_written(new.write(Write::new(key("c"), "")).await);
            new.close().await;
        }
        let reopened = open(&path).await.expect("opened again");
        for (name, expected) in [("a", false), ("late", false), ("b", replaced), ("c", replaced)] {
            let entry = reopened.get(&key(name)).await.expect("read");
            assert_eq!(entry.is_some(), expected, "{name}");
        }
        reopened.close().await;
    }
}

#[tokio::test]
async fn foreign_file_is_rejected_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = folder.path().join("foreign.db");
    let mut connection = raw_connection(&foreign).await;
    sqlx::raw_sql("CREATE TABLE songs (name TEXT)").execute(&mut connection).await.expect("made");
    connection.close().await.expect("closed");
    let text = folder.path().join("notes.txt");
    fs::write(&text, "not a database, but long enough to have a header".repeat(20))
        .expect("written");
    for (path, expected) in
        [(foreign, "belongs to another program"), (text, "not a SQLite database")]
    {
        let before = fs::read(&path).expect("read");
        let reason = unusable(&path).await;
        assert!(reason.contains(expected) && reason.contains("choose another path"), "{reason}");
        assert_eq!(fs::read(&path).expect("read"), before);
    }
}

#[tokio::test]
async fn newer_schema_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    open(&path).await.expect("opened").close().await;
    let mut connection = raw_connection(&path).await;
    sqlx::raw_sql("PRAGMA user_version = 7").execute(&mut connection).await.expect("changed");
    connection.close().await.expect("closed");
    let reason = unusable(&path).await;
    assert!(reason.contains("version 7") && reason.contains("run the newer program"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_without_logs_gets_their_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = open(&path).await.expect("opened");
    expect_written(store.write(Write::new(key("a"), "kept")).await);
    store.close().await;
    let mut connection = raw_connection(&path).await;
    sqlx::raw_sql("DROP TABLE rockbot_log_entries; DROP TABLE rockbot_logs")
        .execute(&mut connection)
        .await
        .expect("dropped");
    connection.close().await.expect("closed");
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let path = path.clone();
        tasks.spawn(async move {
            let stores = stores(open(&path).await.expect("opened"));
            let name = log_name(&number.to_string());
            let appended =
                stores.log.append(&name, LogPosition::START, vec!["one".into()], None).await;
            assert_eq!(appended.map(Appended::number), Ok(Ok(2)));
            let kept = stores.store.get(&key("a")).await.expect("read").expect("an entry");
            assert_eq!(kept.value, "kept");
            stores.close().await;
        });
    }
    within_timeout("the appends", tasks.join_all()).await;
}

/// The trigger rolls back the whole transaction after one entry of the append, like a full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_append_does_not_affect_its_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = stores(open(&path).await.expect("opened"));
    let mut connection = raw_connection(&path).await;
    sqlx::raw_sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON rockbot_log_entries \
         WHEN CAST(new.value AS TEXT) = 'bad' BEGIN SELECT RAISE(ROLLBACK, 'refused'); END",
    )
    .execute(&mut connection)
    .await
    .expect("made");
    check_failed_appends(&store).await;
    store.close().await;
}

#[tokio::test]
async fn uncreatable_folder_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("written");
    let reason = unusable(&folder.path().join("file/store.db")).await;
    assert!(
        reason.contains("cannot open or create") && reason.contains("file/store.db"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_initialize_file_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let path = folder.path().join("store.db");
        tasks.spawn(async move {
            let store = SqliteStore::open(path, Clock::System).await.expect("opened");
            let version =
                expect_written(store.write(Write::new(key(&number.to_string()), "")).await);
            store.close().await;
            version.number()
        });
    }
    let mut versions = within_timeout("the writes", tasks.join_all()).await;
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
}

/// The trigger rolls back the whole transaction, like a full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_write_does_not_affect_its_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Arc::new(open(&path).await.expect("opened"));
    let mut connection = raw_connection(&path).await;
    sqlx::raw_sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON rockbot_entries WHEN new.key LIKE 'bad/%' \
         BEGIN SELECT RAISE(ROLLBACK, 'refused'); END",
    )
    .execute(&mut connection)
    .await
    .expect("made");
    let mut tasks = JoinSet::new();
    for number in 0..60 {
        let store = Arc::clone(&store);
        let kind = if number % 10 == 0 { "bad" } else { "good" };
        let write = Write::new(key(&format!("{kind}/{number}")), "");
        tasks.spawn(async move { (kind, store.write(write).await) });
    }
    for (kind, outcome) in within_timeout("the writes", tasks.join_all()).await {
        match kind {
            "bad" => assert!(matches!(outcome, Err(StoreError::Unusable { .. })), "{outcome:?}"),
            _ => drop(expect_written(outcome)),
        }
    }
    store.close().await;
}
