//! A virtual host of the test broker for one fleet, with its users and their permissions.
//!
//! Starting a broker takes 10 s of two cores; a virtual host takes a fraction of a second. Permissions
//! belong to a virtual host, so tests do not affect each other, even where their users have the same names.

use std::collections::BTreeMap;

use rockbot_contracts::{AgentName, PoolName, definitions::Fleet};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::{
    fixture::{fresh_namespace, test_broker_url},
    management::Management,
};

/// The password of every user of a [`FleetVhost`].
pub const PASSWORD: &str = "secret";
/// The hash of [`PASSWORD`], as `rockbot admin broker-users` writes it.
pub const PASSWORD_HASH: &str = "cm9ja6TXSQv3vBDrIc/k2TfGCf+ERgx3dlDhS8hEVGCoipZu";
/// The end of the name of a user with every permission, which is no user of a fleet.
const FOREIGN: &str = "foreign";
/// A user of another namespace, with every permission.
pub const OTHER_NAMESPACE_USER: &str = "elsewhere.tool-handler";

/// A virtual host with the broker definitions of a fleet. Dropping it removes the virtual host and all in
/// it; the users remain, without a permission.
#[derive(Debug)]
pub struct FleetVhost {
    name: String,
}

/// Permissions of a user: regular expressions over names of queues and exchanges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Those that it may declare and delete.
    pub configure: String,
    /// Those that it may publish to, and bind.
    pub write: String,
    /// Those that it may consume, and bind to.
    pub read: String,
}

impl FleetVhost {
    /// Creates the virtual host and imports the definitions of a fleet with these agents, of the user
    /// `<namespace>.foreign`, which has every permission and is no caller, and of
    /// [`OTHER_NAMESPACE_USER`].
    ///
    /// # Panics
    /// When there is no test broker, or it refuses the import.
    pub async fn create(namespace: &str, agents: &[&str]) -> Self {
        Self::create_with_pools(namespace, agents, &[]).await
    }

    /// Creates the virtual host as [`create`](Self::create) does, for a fleet with these named handler
    /// pools.
    ///
    /// # Panics
    /// When there is no test broker, or it refuses the import.
    pub async fn create_with_pools(namespace: &str, agents: &[&str], pools: &[&str]) -> Self {
        let pools = pools.iter().map(|name| PoolName::new(name).expect("a name of a pool"));
        let vhost = Self { name: fresh_namespace() };
        let agents = agents.iter().map(|name| AgentName::new(*name).expect("an agent name"));
        let fleet = Fleet::new(namespace, &vhost.name, agents).expect("a fleet").with_pools(pools);
        let hashes: BTreeMap<_, _> =
            fleet.users().map(|user| (user, PASSWORD_HASH.to_owned())).collect();
        let mut definitions = fleet.definitions(&hashes);
        for name in [format!("{namespace}.{FOREIGN}"), OTHER_NAMESPACE_USER.to_owned()] {
            let user = json!({
                "name": name, "password_hash": PASSWORD_HASH, "tags": "",
                "hashing_algorithm": "rabbit_password_hashing_sha256",
            });
            let permission = json!({
                "user": name, "vhost": vhost.name, "configure": ".*", "write": ".*", "read": ".*",
            });
            for (kind, object) in [("users", user), ("permissions", permission)] {
                definitions[kind].as_array_mut().expect("a list").push(object);
            }
        }
        let definitions = definitions.to_string();
        let import =
            move || Management::of_test_broker()?.request("POST", "definitions", &definitions);
        let imported = spawn_blocking(import).await.expect("no panic");
        imported.expect("the test broker imports the definitions");
        vhost
    }

    /// Limits the length of a queue with a policy.
    ///
    /// # Panics
    /// When the broker refuses the policy.
    pub async fn limit_queue(&self, queue: &str, messages: u32) {
        let policy = json!({
            "pattern": format!("^{}$", queue.replace('.', "\\.")), "apply-to": "queues",
            "definition": { "max-length": messages }, "priority": 100,
        });
        let path = format!("policies/{}/limit-{queue}", self.name);
        self.manage("PUT", path, policy.to_string()).await;
    }

    /// Deletes a queue, which cancels its consumers.
    ///
    /// # Panics
    /// When the broker refuses it.
    pub async fn delete_queue(&self, queue: &str) {
        self.manage("DELETE", format!("queues/{}/{queue}", self.name), String::new()).await;
    }

    /// Returns the permissions of a user, for [`set_permissions`](Self::set_permissions).
    ///
    /// # Panics
    /// When the user has none.
    pub async fn permissions(&self, user: &str) -> Permissions {
        let path = format!("permissions/{}/{user}", self.name);
        let response = self.manage("GET", path, String::new()).await;
        let granted: Value = serde_json::from_str(&response).expect("a JSON document");
        let text = |name: &str| granted[name].as_str().expect("an expression").to_owned();
        let [configure, write, read] = ["configure", "write", "read"].map(text);
        Permissions { configure, write, read }
    }

    /// Replaces the permissions of a user. Open channels may keep those that they have used.
    ///
    /// # Panics
    /// When the broker refuses them.
    pub async fn set_permissions(&self, user: &str, permissions: &Permissions) {
        let Permissions { configure, write, read } = permissions;
        let body = json!({"configure": configure, "write": write, "read": read}).to_string();
        self.manage("PUT", format!("permissions/{}/{user}", self.name), body).await;
    }

    /// Publishes a message as `user`, with properties and headers that this project's clients do not send.
    /// The user may use the management API from then on; its permissions stay the same.
    ///
    /// # Panics
    /// When the broker refuses it, or routes it to no queue.
    pub async fn publish_raw(&self, user: &str, exchange: &str, message: &Value) {
        let body = json!({
            "password_hash": PASSWORD_HASH, "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "management",
        });
        self.manage("PUT", format!("users/{user}"), body.to_string()).await;
        let path = format!("exchanges/{}/{exchange}/publish", self.name);
        let (user, message) = (user.to_owned(), message.to_string());
        let publish = move || {
            Management::of_test_broker()?
                .with_login(&user, PASSWORD)
                .request("POST", &path, &message)
        };
        let response = spawn_blocking(publish).await.expect("no panic").expect("published");
        assert!(response.contains("\"routed\":true"), "{response}");
    }

    async fn manage(&self, method: &'static str, path: String, body: String) -> String {
        let request = move || Management::of_test_broker()?.request(method, &path, &body);
        spawn_blocking(request)
            .await
            .expect("no panic")
            .expect("the test broker accepts the request")
    }

    /// Returns the AMQP URL for a user, who has [`PASSWORD`].
    pub fn url_for(&self, user: &str) -> String {
        let url = test_broker_url();
        let (_, address) = url.rsplit_once('@').expect("a URL with a user");
        let host = address.split('/').next().unwrap_or(address);
        format!("amqp://{user}:{PASSWORD}@{host}/{}", self.name)
    }
}

impl Drop for FleetVhost {
    fn drop(&mut self) {
        // A failed removal leaves a virtual host behind on the test broker, which harms no other test.
        let _ = Management::of_test_broker().and_then(|management| {
            management.request("DELETE", &format!("vhosts/{}", self.name), "")
        });
    }
}
