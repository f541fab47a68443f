//! What a broker must know of a fleet before its processes come, as RabbitMQ imports it.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::{
    identity::{CLI, User},
    ids::AgentName,
    permissions::{Grants, expression},
    shape::{Argument, dead_letter_exchange, queue_name},
    topology::{
        BindingPattern, InvalidRoutingKey, MONITOR, MONITOR_QUEUE_BYTES, PROCESS_QUEUE_LENGTH,
        QueueName, QueueSpec, REPLY_FAMILIES, REPLY_QUEUE_EXPIRY, key_segment,
    },
};

/// A fleet on a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    namespace: String,
    vhost: String,
    users: Vec<User>,
}

/// A fleet that would let one user be taken for another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFleet {
    /// The namespace makes no names.
    #[error("the namespace can't be used: {0}")]
    Namespace(#[from] InvalidRoutingKey),
    /// Its services would be called like agents.
    #[error("a namespace must not end in `.agent`: its services would be taken for agents")]
    LikeAnAgent,
    /// An agent would own the addresses of the command line program.
    #[error(
        "no agent may be called {CLI:?}: the addresses of that name are the `rockbot` command's"
    )]
    Reserved,
}

impl Fleet {
    /// Every service and these agents, in the virtual host `vhost`.
    ///
    /// # Errors
    /// When one user could be taken for another; see [`InvalidFleet`].
    pub fn new(
        namespace: &str,
        vhost: &str,
        agents: impl IntoIterator<Item = AgentName>,
    ) -> Result<Self, InvalidFleet> {
        QueueName::new(namespace)?;
        if namespace.ends_with(".agent") {
            return Err(InvalidFleet::LikeAnAgent);
        }
        let mut users: Vec<_> = agents.into_iter().map(User::Agent).collect();
        if users
            .iter()
            .any(|user| matches!(user, User::Agent(name) if key_segment(name.as_str()) == CLI))
        {
            return Err(InvalidFleet::Reserved);
        }
        users.sort();
        users.dedup();
        users.extend(User::SERVICES);
        Ok(Self { namespace: namespace.to_owned(), vhost: vhost.to_owned(), users })
    }

    /// The names of its users on the broker.
    pub fn users(&self) -> impl Iterator<Item = String> {
        self.users.iter().map(|user| user.name(&self.namespace))
    }

    /// The document for `rabbitmqctl import_definitions` or `load_definitions`.
    ///
    /// `password_hashes` are by user, as RabbitMQ keeps them. A user without one is made, and can't
    /// log in with a password.
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
            // Only who prepares the broker may bind to the exchange of the dead letters: whoever can
            // bind to it can read everybody's.
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

    /// Holds a process to the bounds that ours declare by themselves: the broker takes the smaller
    /// of both. Work queues and dead letters are left alone.
    fn replies_policy(&self) -> Value {
        let bounds = json!({ "max-length": PROCESS_QUEUE_LENGTH, "expires": expiry() });
        self.operator_policy("replies", &REPLY_FAMILIES, &bounds)
    }

    /// The same for whoever watches: what it leaves behind collects no copies for long.
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

    /// What each user may do, as a table in Markdown.
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
    use crate::{ids::InstanceId, topology::ReplyAddress};

    fn agents(names: &[&str]) -> Vec<AgentName> {
        names.iter().map(|name| AgentName::new(*name).unwrap()).collect()
    }

    fn fleet(names: &[&str]) -> Fleet {
        Fleet::new("rockbot", "/", agents(names)).unwrap()
    }

    #[test]
    fn users_have_no_password_unless_one_is_given() {
        let hashes = BTreeMap::from([("rockbot.cli".to_owned(), "hash".to_owned())]);
        let definitions = fleet(&["assistant"]).definitions(&hashes);
        for user in definitions["users"].as_array().unwrap() {
            let expected = if user["name"] == "rockbot.cli" { "hash" } else { "" };
            assert_eq!(user["password_hash"], expected, "{user}");
            assert_eq!(user["tags"], "", "{user}");
        }
    }

    #[test]
    fn every_user_has_permissions_and_every_work_queue_its_dead_letters() {
        let fleet = fleet(&["mallory", "assistant", "mallory"]);
        let names: Vec<_> = fleet.users().collect();
        assert_eq!(names[..2], ["rockbot.agent.assistant", "rockbot.agent.mallory"]);
        let definitions = fleet.definitions(&BTreeMap::new());
        let count = |part: &str| definitions[part].as_array().unwrap().len();
        assert_eq!((names.len(), count("permissions"), count("topic_permissions")), (8, 8, 8));
        // Two agents, tool.invoke, tool.invoke.mcp, mcp.manage, script.invoke.
        assert_eq!((count("queues"), count("bindings")), (6, 6));
        let table = fleet.table();
        assert!(names.iter().all(|name| table.contains(name)), "{table}");
    }

    #[test]
    fn the_operators_policies_are_for_answers_and_for_those_who_watch() {
        let fleet = fleet(&["assistant"]);
        let pattern =
            |policy: &Value| Regex::new(policy["value"]["pattern"].as_str().unwrap()).unwrap();
        let (monitors, pattern) =
            (pattern(&fleet.monitors_policy()), pattern(&fleet.replies_policy()));
        let monitor = QueueSpec::monitor(&InstanceId::new("i").unwrap(), Vec::new());
        assert!(monitors.is_match(&queue_name("rockbot", &monitor.name)));
        assert!(!monitors.is_match("rockbot.user.message.monitor.x"));
        let answers =
            ReplyAddress::new(AgentName::new("assistant").unwrap(), InstanceId::new("i").unwrap());
        assert!(pattern.is_match(&queue_name("rockbot", &answers.queue().name)));
        for work in ["tool.invoke", "tool.invoke.dlq", "user.message.tool.result.x"] {
            assert!(!pattern.is_match(&format!("rockbot.{work}")), "{work}");
        }
    }

    #[test]
    fn nobody_can_be_taken_for_somebody_else() {
        let fleet = |namespace, names: &[&str]| Fleet::new(namespace, "/", agents(names));
        assert_eq!(fleet("a.agent", &[]), Err(InvalidFleet::LikeAnAgent));
        assert_eq!(fleet("rockbot", &["cli"]), Err(InvalidFleet::Reserved));
        assert!(matches!(fleet("a b", &[]), Err(InvalidFleet::Namespace(_))));
    }
}
