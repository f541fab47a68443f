//! The broker and the database of a run.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use anyhow::Result;
use rockbot_bus::Bus;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_store::{Clock, Store, StoreUrl};
use rockbot_testkit::{
    broker::PrivateBroker,
    fixture::{TEST_TIMEOUT, test_broker_url},
    management::Management,
    postgres::PrivatePostgres,
};
use serde_json::Value;
use tokio::task::spawn_blocking;

/// The servers, and their addresses.
pub(super) struct Services {
    pub(super) namespace: String,
    pub(super) amqp_url: String,
    pub(super) store_url: String,
    management: Management,
    broker: Option<Controlled<PrivateBroker>>,
    database: Option<Controlled<PrivatePostgres>>,
}

/// A server that faults stop and start, one fault at a time.
pub(super) struct Controlled<S> {
    server: Arc<Mutex<S>>,
    fault: tokio::sync::Mutex<()>,
}

impl<S: Send + 'static> Controlled<S> {
    fn new(server: S) -> Self {
        Self { server: Arc::new(Mutex::new(server)), fault: tokio::sync::Mutex::default() }
    }

    /// Reserves the server for a fault; `None` during another one.
    pub(super) fn reserve(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.fault.try_lock().ok()
    }

    /// Runs an operation on a blocking thread. A server that cannot be controlled ends the run.
    pub(super) async fn run(&self, operation: impl FnOnce(&mut S) -> Result<()> + Send + 'static) {
        let server = self.server.clone();
        spawn_blocking(move || {
            operation(&mut server.lock().expect("not poisoned")).expect("the server obeys");
        })
        .await
        .expect("no panic");
    }
}

impl Services {
    /// Starts a broker and a database for this run.
    pub(super) async fn private(namespace: &str) -> Self {
        let broker = spawn_blocking(|| PrivateBroker::start().expect("a broker"));
        let database = spawn_blocking(|| PrivatePostgres::start().expect("a database"));
        let (broker, database) =
            (broker.await.expect("no panic"), database.await.expect("no panic"));
        Self {
            namespace: namespace.to_owned(),
            amqp_url: broker.amqp_url(),
            store_url: database.url(),
            management: Management::new(&broker.management_url()).expect("its URL"),
            broker: Some(Controlled::new(broker)),
            database: Some(Controlled::new(database)),
        }
    }

    /// Uses the broker of the tests, and a SQLite file.
    pub(super) fn shared(namespace: &str, journal: &Path) -> Self {
        Self {
            namespace: namespace.to_owned(),
            amqp_url: test_broker_url(),
            store_url: format!("sqlite:{}", journal.display()),
            management: Management::of_test_broker().expect("its management API"),
            broker: None,
            database: None,
        }
    }

    pub(super) fn broker(&self) -> &Controlled<PrivateBroker> {
        self.broker.as_ref().expect("scheduled with a private broker only")
    }

    pub(super) fn database(&self) -> &Controlled<PrivatePostgres> {
        self.database.as_ref().expect("scheduled with a private database only")
    }

    /// Opens the store of the handlers.
    pub(super) async fn open_store(&self) -> Arc<dyn Store> {
        let url = StoreUrl::parse(&self.store_url.clone().into()).expect("its URL");
        rockbot_store_sql::connect(&url, Clock::System).await.expect("the store")
    }

    /// Connects to the bus at `url`, the broker or a proxy of it; `None` if that takes too long.
    pub(super) async fn connect(&self, url: &str, name: &str) -> Option<Arc<dyn Bus>> {
        let config = RabbitConfig::new(url, name).with_namespace(&self.namespace);
        let bus = RabbitBus::start(&config).expect("a usable URL");
        bus.connected(TEST_TIMEOUT).await.ok()?;
        Some(Arc::new(bus))
    }

    /// Sends a request to the management API. Returns `None` while it is unavailable.
    pub(super) async fn manage(&self, method: &'static str, path: String) -> Option<String> {
        let management = self.management.clone();
        let request = spawn_blocking(move || management.request(method, &path, ""));
        request.await.expect("no panic").ok()
    }

    /// Closes connections whose client name starts with `prefix`. Returns their number.
    pub(super) async fn close_connections(&self, prefix: &str) -> usize {
        let listed = self.manage("GET", "connections?columns=name,user_provided_name".to_owned());
        let listed = listed.await.unwrap_or_default();
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap_or_default();
        let mut closed = 0;
        for connection in listed {
            let text = |key: &str| connection[key].as_str().unwrap_or_default().to_owned();
            if text("user_provided_name").starts_with(prefix) {
                let name = text("name").replace(' ', "%20").replace('>', "%3E");
                let path = format!("connections/{name}");
                closed += usize::from(self.manage("DELETE", path).await.is_some());
            }
        }
        closed
    }

    /// Deletes a queue. Returns whether it existed.
    pub(super) async fn delete_queue(&self, name: &str) -> bool {
        let path = format!("queues/%2F/{}.{name}", self.namespace);
        self.manage("DELETE", path).await.is_some()
    }

    /// Returns the numbers of ready and of unsettled messages of each queue of the run with messages;
    /// `None` while the management API is unavailable.
    pub(super) async fn queues(&self) -> Option<Vec<(String, u64, u64)>> {
        let path = "queues?columns=name,messages_ready,messages_unacknowledged".to_owned();
        let listed = self.manage("GET", path).await?;
        let listed: Vec<Value> = serde_json::from_str(&listed).ok()?;
        let prefix = format!("{}.", self.namespace);
        let row = |queue: &Value| {
            let name = queue["name"].as_str()?.strip_prefix(&prefix)?.to_owned();
            // Absent until the broker has counted.
            let (ready, unsettled) = (&queue["messages_ready"], &queue["messages_unacknowledged"]);
            Some((name, ready.as_u64().unwrap_or(1), unsettled.as_u64().unwrap_or(1)))
        };
        let rows = listed.iter().filter_map(row);
        Some(rows.filter(|(_, ready, unsettled)| ready + unsettled > 0).collect())
    }
}
