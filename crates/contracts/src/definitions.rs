//! RabbitMQ definitions of a fleet: users, permissions, exchanges, dead-letter queues and policies.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::{
    identity::{CLI, User},
    ids::AgentName,
    permissions::{Grants, expression},
    pool_name::PoolName,
    shape::{Argument, dead_letter_exchange, queue_name},
    topology::{
        BindingPattern, InvalidRoutingKey, MONITOR, MONITOR_QUEUE_BYTES, PROCESS_QUEUE_LENGTH,
        QueueName, QueueSpec, REPLY_FAMILIES, REPLY_QUEUE_EXPIRY, key_segment,
    },
};

/// The broker users of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    namespace: String,
    vhost: String,
    users: Vec<User>,
}

/// Errors for fleets in which one user could be mistaken for another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFleet {
    /// The namespace is not valid in queue names.
    #[error("invalid namespace: {0}")]
    Namespace(#[from] InvalidRoutingKey),
    /// Names of its services would look like names of agents or handler pools.
    #[error(
        "invalid namespace: it ends in `.agent` or `.tool-handler`, so its services would look like \
         agents or handler pools; use another"
    )]
    AmbiguousNamespace,
    /// An agent has the name of the command line program, and would receive its replies.
    #[error("invalid agent name {CLI:?}: it is reserved for the `rockbot` command; use another")]
    ReservedAgentName,
}

impl Fleet {
    /// Creates a fleet of all services and the given agents, in the virtual host `vhost`. Its tool handlers
    /// are those of the unnamed pool; see [`Fleet::with_pools`].
    ///
    /// # Errors
    /// When one user could be mistaken for another; see [`InvalidFleet`].
    pub fn new(
        namespace: &str,
        vhost: &str,
        agents: impl IntoIterator<Item = AgentName>,
    ) -> Result<Self, InvalidFleet> {
        QueueName::new(namespace)?;
        if namespace.ends_with(".agent") || namespace.ends_with(".tool-handler") {
            return Err(InvalidFleet::AmbiguousNamespace);
        }
        let mut users: Vec<_> = agents.into_iter().map(User::Agent).collect();
        if users
            .iter()
            .any(|user| matches!(user, User::Agent(name) if key_segment(name.as_str()) == CLI))
        {
            return Err(InvalidFleet::ReservedAgentName);
        }
        users.sort();
        users.dedup();
        users.extend(User::SERVICES);
        Ok(Self { namespace: namespace.to_owned(), vhost: vhost.to_owned(), users })
    }

    /// Adds an agent, unless the fleet has it.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentName) -> Self {
        let user = User::Agent(agent);
        if !self.users.contains(&user) {
            self.users.insert(0, user);
        }
        self
    }

    /// Adds the handlers of these pools, each with a user of its own.
    #[must_use]
    pub fn with_pools(mut self, pools: impl IntoIterator<Item = PoolName>) -> Self {
        let mut pools: Vec<_> = pools.into_iter().map(User::PoolHandler).collect();
        pools.sort();
        self.users.extend(pools);
        self.users.dedup();
        self
    }

    /// Returns the named pools of its handlers.
    pub fn pools(&self) -> impl Iterator<Item = &PoolName> {
        self.users.iter().filter_map(|user| match user {
            User::PoolHandler(pool) => Some(pool),
            _ => None,
        })
    }

    /// Returns the names of its broker users.
    pub fn users(&self) -> impl Iterator<Item = String> {
        self.users.iter().map(|user| user.name(&self.namespace))
    }

    /// Returns the document for `rabbitmqctl import_definitions` or `load_definitions`.
    ///
    /// `password_hashes` maps users to password hashes in RabbitMQ's format. A user without one is
    /// created, and can't log in with a password.
    #[must_use]
    pub fn definitions(&self, password_hashes: &BTreeMap<String, String>) -> Value {
        let (namespace, vhost) = (&self.namespace, &self.vhost);
        let mut users = Vec::new();
        let mut permissions = Vec::new();
        let mut topic_permissions = Vec::new();
        let mut dead_letters = Vec::new();
        let mut bindings = Vec::new();
        for user in &self.users {
            let name = user.name(namespace);
            let grants = Grants::for_user(user);
            let granted = grants.permissions(namespace);
            users.push(json!({
                "name": name,
                "password_hash": password_hashes.get(&name).map_or("", String::as_str),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }));
            permissions.push(json!({
                "user": name, "vhost": vhost,
                "configure": granted.configure, "write": granted.write, "read": granted.read,
            }));
            topic_permissions.push(json!({
                "user": name, "vhost": vhost, "exchange": namespace,
                "write": granted.topic_write, "read": granted.topic_read,
            }));
            for key in &grants.work_queues {
                let work = QueueSpec::work(key);
                dead_letters.push(self.queue(&work.dead_letters()));
                bindings.push(json!({
                    "source": dead_letter_exchange(namespace), "vhost": vhost,
                    "destination": queue_name(namespace, &work.name.dead_letters()),
                    "destination_type": "queue",
                    "routing_key": queue_name(namespace, &work.name), "arguments": {},
                }));
            }
        }
        json!({
            "vhosts": [{ "name": vhost }],
            "users": users,
            "permissions": permissions,
            "topic_permissions": topic_permissions,
            "exchanges": [
                self.exchange(namespace, "topic"),
                self.exchange(&dead_letter_exchange(namespace), "direct"),
            ],
            // No user may bind to the dead-letter exchange: a binding gives access to the dead letters of
            // all queues. So their queues are part of the definitions.
            "queues": dead_letters,
            "bindings": bindings,
            "parameters": [self.replies_policy(), self.monitors_policy()],
        })
    }

    fn exchange(&self, name: &str, kind: &str) -> Value {
        json!({
            "name": name, "vhost": self.vhost, "type": kind, "durable": true,
            "auto_delete": false, "internal": false, "arguments": {},
        })
    }

    fn queue(&self, spec: &QueueSpec) -> Value {
        let arguments = spec.arguments(&self.namespace).into_iter().map(|(name, value)| {
            let value = match value {
                Argument::Text(text) => Value::from(text),
                Argument::Number(number) => Value::from(number),
            };
            (name.to_owned(), value)
        });
        json!({
            "name": queue_name(&self.namespace, &spec.name), "vhost": self.vhost,
            "durable": true, "auto_delete": false,
            "arguments": arguments.collect::<serde_json::Map<_, _>>(),
        })
    }

    /// Returns the policy of reply queues. It enforces the limits that RockBot's processes declare
    /// themselves; the broker applies the smaller value. Work and dead-letter queues are not affected.
    fn replies_policy(&self) -> Value {
        let bounds = json!({ "max-length": PROCESS_QUEUE_LENGTH, "expires": expiry() });
        self.operator_policy("replies", &REPLY_FAMILIES, &bounds)
    }

    /// Returns the policy of monitor queues, so that an abandoned one is deleted soon.
    fn monitors_policy(&self) -> Value {
        let bounds = json!({
            "max-length": PROCESS_QUEUE_LENGTH, "max-length-bytes": MONITOR_QUEUE_BYTES,
            "expires": expiry(),
        });
        self.operator_policy("monitors", &[MONITOR], &bounds)
    }

    fn operator_policy(&self, name: &str, families: &[&str], bounds: &Value) -> Value {
        let families: Vec<_> = families.iter().map(|family| expression(family)).collect();
        let (namespace, families) = (expression(&self.namespace), families.join("|"));
        json!({
            "vhost": self.vhost, "component": "operator_policy",
            "name": format!("{}.{name}", self.namespace),
            "value": {
                "pattern": format!("^{namespace}\\.(?:{families})\\."),
                "apply-to": "queues", "priority": 0,
                "definition": bounds,
            },
        })
    }

    /// Returns the rights of each user as a Markdown table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::from(
            "| user | publishes with | binds its queues to | declares and consumes | inspects |\n\
             |---|---|---|---|---|\n",
        );
        for user in &self.users {
            let grants = Grants::for_user(user);
            let cell = |patterns: &[BindingPattern]| {
                let names = patterns.iter().map(|pattern| format!("`{pattern}`"));
                names.collect::<Vec<_>>().join("<br>")
            };
            let _ = writeln!(
                table,
                "| `{}` | {} | {} | {} | {} |",
                user.name(&self.namespace),
                cell(&grants.publishes),
                cell(&grants.binds),
                cell(&grants.queues),
                cell(&grants.inspects),
            );
        }
        table
    }
}

fn expiry() -> u64 {
    u64::try_from(REPLY_QUEUE_EXPIRY.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;
    use crate::{ids::InstanceId, permissions::MAX_PERMISSION_BYTES, topology::ReplyAddress};

    fn agents(names: &[&str]) -> Vec<AgentName> {
        names.iter().map(|name| AgentName::new(*name).unwrap()).collect()
    }

    fn fleet(names: &[&str]) -> Fleet {
        Fleet::new("rockbot", "/", agents(names)).unwrap()
    }

    #[test]
    fn user_without_given_password_has_none() {
        let hashes = BTreeMap::from([("rockbot.cli".to_owned(), "hash".to_owned())]);
        let definitions = fleet(&["assistant"]).definitions(&hashes);
        for user in definitions["users"].as_array().unwrap() {
            let expected = if user["name"] == "rockbot.cli" { "hash" } else { "" };
            assert_eq!(user["password_hash"], expected, "{user}");
            assert_eq!(user["tags"], "", "{user}");
        }
    }

    #[test]
    fn definitions_cover_all_users_and_work_queues() {
        let fleet = fleet(&["mallory", "assistant", "mallory"]);
        let names: Vec<_> = fleet.users().collect();
        assert_eq!(names[..2], ["rockbot.agent.assistant", "rockbot.agent.mallory"]);
        let definitions = fleet.definitions(&BTreeMap::new());
        let count = |part: &str| definitions[part].as_array().unwrap().len();
        assert_eq!((names.len(), count("permissions"), count("topic_permissions")), (9, 9, 9));
        // Four for each of two agents, tool.invoke, tool.invoke.mcp, mcp.manage, script.invoke.
        assert_eq!((count("queues"), count("bindings")), (12, 12));
        let table = fleet.table();
        assert!(names.iter().all(|name| table.contains(name)), "{table}");
    }

    #[test]
    fn permissions_of_the_longest_names_fit_the_limit_of_the_broker() {
        let namespace = "n".repeat(200);
        let fleet = Fleet::new(&namespace, "/", agents(&[&".".repeat(255)])).unwrap();
        let fleet = fleet.with_pools([PoolName::new(&"p".repeat(32)).unwrap()]);
        for user in &fleet.users {
            let bytes = Grants::for_user(user).permissions(&namespace).longest();
            assert!(bytes <= MAX_PERMISSION_BYTES, "{user}: {bytes}");
        }
    }

    #[test]
    fn each_pool_has_one_user_and_one_dead_letter_queue() {
        let pools = ["web", "files", "web"].map(|name| PoolName::new(name).unwrap());
        let before = fleet(&["assistant"]);
        let fleet = before.clone().with_pools(pools);
        let names: Vec<_> = fleet.users().skip(before.users().count()).collect();
        assert_eq!(names, ["rockbot.tool-handler.files", "rockbot.tool-handler.web"]);
        let definitions = fleet.definitions(&BTreeMap::new());
        let named = |part: &str, key: &str, name: &str| {
            let all = definitions[part].as_array().unwrap().iter();
            all.filter(|one| one[key] == name).count()
        };
        for pool in ["files", "web"] {
            let queue = format!("rockbot.tool.invoke.pool.{pool}");
            assert_eq!(named("queues", "name", &format!("{queue}.dlq")), 1);
            assert_eq!(named("bindings", "routing_key", &queue), 1);
        }
    }

    #[test]
    fn operator_policies_match_reply_and_monitor_queues() {
        let fleet = fleet(&["assistant"]);
        let pattern =
            |policy: &Value| Regex::new(policy["value"]["pattern"].as_str().unwrap()).unwrap();
        let (monitors, replies) =
            (pattern(&fleet.monitors_policy()), pattern(&fleet.replies_policy()));
        let monitor = QueueSpec::monitor(&InstanceId::new("i").unwrap(), Vec::new());
        assert!(monitors.is_match(&queue_name("rockbot", &monitor.name)));
        assert!(!monitors.is_match("rockbot.user.message.monitor.x"));
        let address =
            ReplyAddress::new(AgentName::new("assistant").unwrap(), InstanceId::new("i").unwrap());
        assert!(replies.is_match(&queue_name("rockbot", &address.queue().name)));
        for work in ["tool.invoke", "tool.invoke.dlq", "user.message.tool.result.x"] {
            assert!(!replies.is_match(&format!("rockbot.{work}")), "{work}");
        }
    }

    #[test]
    fn ambiguous_user_names_are_rejected() {
        let fleet = |namespace, names: &[&str]| Fleet::new(namespace, "/", agents(names));
        for namespace in ["a.agent", "a.tool-handler"] {
            assert_eq!(fleet(namespace, &[]), Err(InvalidFleet::AmbiguousNamespace));
        }
        assert_eq!(fleet("rockbot", &["cli"]), Err(InvalidFleet::ReservedAgentName));
        assert!(matches!(fleet("a b", &[]), Err(InvalidFleet::Namespace(_))));
    }
}
