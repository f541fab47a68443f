//! The PostgreSQL store.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::failed_appends::check_failed_appends;
use futures_util::{FutureExt, StreamExt, stream};
use rockbot_store::{
    Appended, Clock, LogPosition, ManualClock, Store, StoreError, Stores, Timestamp, Write,
};
use rockbot_store_sql::PostgresStore;
use rockbot_testkit::{
    StoreFixture,
    fixture::{fresh_namespace, within_timeout},
    store_fixture::{Opener, expect_written, key, log_name, test_postgres_url},
};
use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinSet;

rockbot_testkit::store_conformance_tests!(crate::postgres::fixture);
rockbot_testkit::durable_store_conformance_tests!(crate::postgres::fixture);
rockbot_testkit::log_conformance_tests!(crate::postgres::fixture);
rockbot_testkit::durable_log_conformance_tests!(crate::postgres::fixture);

/// A schema of one test.
#[derive(Clone)]
struct Schema(String);

impl Schema {
    async fn create() -> Self {
        let schema = Self(fresh_namespace());
        run(&format!("CREATE SCHEMA \"{}\"", schema.0)).await;
        schema
    }

    /// Returns the test server's address with this schema as the search path.
    fn url(&self) -> SecretString {
        let url = test_postgres_url();
        let more = if url.contains('?') { '&' } else { '?' };
        format!("{url}{more}options[search_path]=\"{}\"", self.0).into()
    }

    async fn connect(&self, clock: Clock) -> Result<PostgresStore, StoreError> {
        within_timeout("the connection", PostgresStore::connect(&self.url(), clock)).await
    }

    async fn remove(&self) {
        run(&format!("DROP SCHEMA \"{}\" CASCADE", self.0)).await;
    }
}

/// Runs statements on a separate connection.
async fn run(statements: &str) {
    let work = async {
        let mut connection = PgConnection::connect(&test_postgres_url()).await.expect("connected");
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
            .execute(&mut connection)
            .await
            .expect("done");
        connection.close().await.expect("closed");
    };
    within_timeout("the statements", work).await;
}

fn stores(database: PostgresStore) -> Stores {
    let database = Arc::new(database);
    Stores { store: database.clone(), log: database }
}

async fn fixture() -> StoreFixture {
    let manual_clock = ManualClock::new();
    let clock = Clock::from(&manual_clock);
    let schema = Schema::create().await;
    let schema_to_remove = schema.clone();
    let open: Opener = Arc::new(move || {
        let (schema, clock) = (schema.clone(), clock.clone());
        async move { stores(schema.connect(clock).await.expect("connected")) }.boxed()
    });
    let cleanup = Arc::new(move || {
        let schema = schema_to_remove.clone();
        async move { schema.remove().await }.boxed()
    });
    StoreFixture::new(manual_clock, open, cleanup).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_connects_create_tables_once() {
    let schema = Schema::create().await;
    let mut tasks = JoinSet::new();
    for number in 0..10 {
        let schema = schema.clone();
        tasks.spawn(async move {
            let store = schema.connect(Clock::System).await.expect("connected");
            expect_written(store.write(Write::new(key(&number.to_string()), "")).await);
            store.close().await;
        });
    }
    within_timeout("the writes", tasks.join_all()).await;
    schema.remove().await;
}

#[tokio::test]
async fn newer_schema_is_rejected() {
    let schema = Schema::create().await;
    schema.connect(Clock::System).await.expect("connected").close().await;
    run(&format!("INSERT INTO \"{}\".rockbot_schema VALUES (7)", schema.0)).await;
    match schema.connect(Clock::System).await {
        Err(StoreError::Unusable { reason }) => assert!(reason.contains("version 7"), "{reason}"),
        other => panic!("{other:?}"),
    }
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_write_does_not_affect_others() {
    let schema = Schema::create().await;
    let store = Arc::new(schema.connect(Clock::System).await.expect("connected"));
    let table = format!("\"{}\".rockbot_entries", schema.0);
    run(&format!("ALTER TABLE {table} ADD CHECK (key NOT LIKE 'bad/%')")).await;
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
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_append_does_not_affect_others() {
    let schema = Schema::create().await;
    let store = stores(schema.connect(Clock::System).await.expect("connected"));
    let table = format!("\"{}\".rockbot_log_entries", schema.0);
    run(&format!("ALTER TABLE {table} ADD CHECK (value <> 'bad'::bytea)")).await;
    check_failed_appends(&store).await;
    store.close().await;
    schema.remove().await;
}

#[tokio::test]
async fn database_without_logs_gets_their_tables() {
    let schema = Schema::create().await;
    let store = schema.connect(Clock::System).await.expect("connected");
    expect_written(store.write(Write::new(key("a"), "kept")).await);
    store.close().await;
    let name = &schema.0;
    run(&format!("DROP TABLE \"{name}\".rockbot_log_entries, \"{name}\".rockbot_logs")).await;
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let schema = schema.clone();
        tasks.spawn(async move {
            let stores = stores(schema.connect(Clock::System).await.expect("connected"));
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
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_one_batch_to_one_log_keep_their_order() {
    let schema = Schema::create().await;
    let store = stores(schema.connect(Clock::System).await.expect("connected"));
    let name = log_name("a");
    let mut appends = Vec::new();
    for number in 1..=20_u64 {
        appends.push(store.log.append(&name, number.into(), vec![number.to_string().into()], None));
    }
    let outcomes =
        within_timeout("the appends", stream::iter(appends).buffered(20).collect::<Vec<_>>()).await;
    for (number, outcome) in (1..).zip(outcomes) {
        assert_eq!(outcome.map(Appended::number), Ok(Ok(number + 1)));
    }
    store.close().await;
    schema.remove().await;
}

#[tokio::test]
async fn entries_expire_by_server_time() {
    let schema = Schema::create().await;
    let store = schema.connect(Clock::System).await.expect("connected");
    let now = store.now().await.expect("the time");
    let local = Timestamp::from(SystemTime::now());
    let difference = now.since(local).max(local.since(now));
    assert!(difference < Duration::from_secs(60), "the server's time differs by {difference:?}");
    let ttl = Duration::from_millis(50);
    expect_written(store.write(Write::new(key("a"), "").with_ttl(ttl)).await);
    let expired = async { while store.get(&key("a")).await.expect("read").is_some() {} };
    within_timeout("the expiry", expired).await;
    assert!(store.now().await.expect("the time") >= now.after(ttl));
    store.close().await;
    schema.remove().await;
}

/// Uses a separate database, whose name identifies the connections of this test.
#[tokio::test]
async fn store_reconnects_after_terminated_connections() {
    let database = fresh_namespace();
    run(&format!("CREATE DATABASE \"{database}\"")).await;
    let url = url_of_database(&test_postgres_url(), &database).into();
    let store = PostgresStore::connect(&url, Clock::System).await.expect("connected");
    expect_written(store.write(Write::new(key("a"), "before")).await);
    terminate_connections(&database).await;
    let written = async {
        loop {
            match store.write(Write::new(key("a"), "after")).await {
                Err(StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. }) => {}
                outcome => break expect_written(outcome),
            }
        }
    };
    within_timeout("the reconnect", written).await;
    let store = stores(store);
    let name = log_name("a");
    let first = store.log.append(&name, LogPosition::START, vec!["one".into()], None).await;
    assert_eq!(first.map(Appended::number), Ok(Ok(2)));
    terminate_connections(&database).await;
    let appended = async {
        loop {
            match store.log.append(&name, 2.into(), vec!["two".into()], None).await {
                Err(StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. }) => {}
                Ok(Appended::Done { next } | Appended::Conflict { next }) => break next.number,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert_eq!(within_timeout("the append", appended).await, 3);
    let entries = store.log.read(&name, 2, 10).await.expect("read");
    assert!(entries.iter().map(|entry| &entry.value[..]).eq([b"two"]));
    store.close().await;
    run(&format!("DROP DATABASE \"{database}\" WITH (FORCE)")).await;
}

async fn terminate_connections(database: &str) {
    run(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    ))
    .await;
}

/// Replaces the database in a URL.
fn url_of_database(url: &str, database: &str) -> String {
    let (path, options) =
        url.split_once('?').map_or((url, None), |(path, more)| (path, Some(more)));
    let (server, _) = path.rsplit_once('/').expect("a URL with a database");
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{server}/{database}{options}")
}

#[tokio::test]
async fn connect_error_does_not_contain_password() {
    let connect = |url: String| async move {
        let url = SecretString::from(url);
        let connecting = PostgresStore::connect(&url, Clock::System);
        let error = within_timeout("the error", connecting).await.expect_err("no store");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        error
    };
    let port = rockbot_testkit::broker::free_port().expect("a port");
    let unreachable = connect(format!("postgres://me:hunter2@127.0.0.1:{port}/x")).await;
    assert!(matches!(unreachable, StoreError::Unavailable { .. }), "{unreachable:?}");
    let url = test_postgres_url();
    let (_, server) = url.split_once('@').expect("a user in the address");
    let rejected = connect(format!("postgres://unknown-user:hunter2@{server}")).await;
    assert!(matches!(rejected, StoreError::Unusable { .. }), "{rejected:?}");
}
