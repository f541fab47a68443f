//! Queues, routing keys and bindings. All names on the bus are defined here.
//!
//! Queue names are bare (`tool.invoke`); an adapter adds the namespace of the deployment as a prefix
//! (`rockbot.tool.invoke`), so that several fleets can share a broker.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceId};

pub use crate::{
    agent_keys::{
        agent_response, agent_response_at, agent_task, agent_task_cancel, agent_task_queue,
    },
    reply_address::{
        ReplyAddress, caller_of, is_agent_response, is_mcp_manage_reply, is_script_reply,
        is_tool_reply, is_user_reply, progress_key,
    },
    segment::{key_segment, stable_hash},
};

/// Default namespace: name of the exchange and prefix of every queue.
pub const DEFAULT_NAMESPACE: &str = "rockbot";

/// Maximum length of a routing key or queue name in bytes: an AMQP short string.
pub const MAX_NAME_BYTES: usize = 255;

/// An invalid routing key or queue name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a routing key: use 1 to {MAX_NAME_BYTES} bytes of segments joined by single dots, without `*`, `#`, spaces and control characters"
)]
pub struct InvalidRoutingKey {
    name: String,
}

/// A routing key: segments joined by dots, without wildcards.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RoutingKey(Arc<str>);

impl RoutingKey {
    /// Validates a routing key.
    ///
    /// # Errors
    /// When it is empty, over 255 bytes, or contains an empty segment, a wildcard, a space or a control
    /// character.
    pub fn new(key: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidRoutingKey> {
        let text = key.as_ref();
        if text.len() > MAX_NAME_BYTES || has_empty_segment(text) || has_bad_char(text) {
            return Err(InvalidRoutingKey { name: text.chars().take(64).collect() });
        }
        Ok(Self(key.into()))
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates a key from the constants below and encoded segments, which are valid by construction.
    pub(crate) fn built(key: String) -> Self {
        debug_assert!(Self::new(key.clone()).is_ok(), "{key}");
        Self(key.into())
    }

    pub(crate) fn is_in(&self, family: &str) -> bool {
        self.0.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

fn has_empty_segment(key: &str) -> bool {
    let mut after_dot = true;
    for byte in key.bytes() {
        let dot = byte == b'.';
        if dot && after_dot {
            return true;
        }
        after_dot = dot;
    }
    after_dot
}

fn has_bad_char(key: &str) -> bool {
    // Every message's key is checked, and nearly all are plain ASCII. Without an early exit, so that the
    // compiler can vectorize the loop.
    let plain = key.bytes().fold(true, |plain, byte| {
        plain & matches!(byte, b'!'..=b'~') & !matches!(byte, b'*' | b'#')
    });
    let bad = |c: char| matches!(c, '*' | '#') || c.is_whitespace() || c.is_control();
    !plain && key.contains(bad)
}

impl TryFrom<String> for RoutingKey {
    type Error = InvalidRoutingKey;
    fn try_from(key: String) -> Result<Self, InvalidRoutingKey> {
        Self::new(key)
    }
}

impl From<RoutingKey> for String {
    fn from(key: RoutingKey) -> Self {
        key.0.as_ref().to_owned()
    }
}

impl fmt::Display for RoutingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A binding pattern: `*` matches one segment, `#` any number of segments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BindingPattern(Box<str>);

impl BindingPattern {
    /// Creates a pattern; a routing key is one too.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// Returns the pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether it contains no wildcard.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains(['*', '#'])
    }

    /// Returns whether a queue bound with this pattern receives messages with this key, by the rules of
    /// an AMQP 0-9-1 topic exchange.
    #[must_use]
    pub fn matches(&self, key: &RoutingKey) -> bool {
        // Greedy matching with a single backtracking point, so that many `#` can't take exponential time.
        let pattern: Vec<&str> = self.0.split('.').collect();
        let key: Vec<&str> = key.as_str().split('.').collect();
        let (mut at_pattern, mut at_key) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at_key < key.len() {
            match pattern.get(at_pattern) {
                Some(&"#") => {
                    retry = Some((at_pattern, at_key));
                    at_pattern += 1;
                }
                Some(&segment) if segment == "*" || segment == key[at_key] => {
                    at_pattern += 1;
                    at_key += 1;
                }
                _ => {
                    let Some((hash, consumed)) = retry else { return false };
                    retry = Some((hash, consumed + 1));
                    at_pattern = hash + 1;
                    at_key = consumed + 1;
                }
            }
        }
        pattern[at_pattern..].iter().all(|segment| *segment == "#")
    }
}

impl From<&RoutingKey> for BindingPattern {
    fn from(key: &RoutingKey) -> Self {
        Self(key.as_str().into())
    }
}

impl fmt::Display for BindingPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bare name of a queue, without the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// Validates a queue name by the rules of a routing key.
    ///
    /// # Errors
    /// When it would not be a valid routing key.
    pub fn new(name: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidRoutingKey> {
        RoutingKey::new(name).map(|key| Self(key.0))
    }

    /// Returns the bare name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of its dead-letter queue.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        Self(format!("{}.dlq", self.0).into())
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Kinds of queues, which decide their arguments at the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// Requests for competing consumers: replicated, bounded, rejects when full, dead-letters.
    Work,
    /// Replies for one process: survives a disconnect, expires when unused.
    Reply,
    /// Announcements for one process: deleted with its connection, drops the oldest message when full.
    Exclusive,
    /// Copies of messages for a process that may not run yet: replicated, drops the oldest message when full,
    /// and messages expire.
    Retained,
    /// Dead letters of a work queue: expire, and the oldest is dropped when full.
    DeadLetters,
}

/// Specification of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// Bare name.
    pub name: QueueName,
    /// Kind of queue.
    pub kind: QueueKind,
    /// Bindings to the exchange.
    pub bindings: Vec<BindingPattern>,
    /// Maximum number of messages.
    pub max_length: u32,
    /// Maximum size of all waiting bodies in bytes; `None` for no such limit.
    pub max_bytes: Option<u64>,
    /// Work queue whose dead-letter queue receives its dead letters: itself, except for a quarantine
    /// queue.
    pub dead_letters_as: QueueName,
}

/// Deliveries of a message before a work queue dead-letters it. A lost connection costs one of them, an orderly stop of
/// the broker up to three. A crash of the broker costs one for each consumer of the queue that could have taken another
/// message: the queue passes the message from one to the next before it knows that all are gone.
pub const MAX_DELIVERIES: u32 = 30;
/// Reason of a dead letter that was delivered [`MAX_DELIVERIES`] times, or that may have crashed too many handlers.
pub const DELIVERED_TOO_OFTEN: &str = "delivered too often";
/// Default length limit of a work queue.
pub const WORK_QUEUE_LENGTH: u32 = 100_000;
/// Size limit of the messages that wait in a work queue, in bytes.
pub const WORK_QUEUE_BYTES: u64 = 256 * 1024 * 1024;
/// Default length limit of a queue of one process.
pub const PROCESS_QUEUE_LENGTH: u32 = 10_000;
/// Size limit of a monitor's queue in bytes: each message is a copy that the broker stores.
pub const MONITOR_QUEUE_BYTES: u64 = 64 * 1024 * 1024;
/// Size limit of the messages in a queue of retained messages, in bytes.
pub const RETAINED_QUEUE_BYTES: u64 = 64 * 1024 * 1024;
/// Time until a retained message expires, and the maximum of `approval.expiry`: a decision must not expire before its
/// request.
pub const RETAINED_TTL: Duration = Duration::from_secs(3600);
/// Length limit of a dead-letter queue.
pub const DEAD_LETTER_LENGTH: u32 = 10_000;
/// Size limit of the messages in a dead-letter queue, in bytes.
pub const DEAD_LETTER_BYTES: u64 = 512 * 1024 * 1024;
/// Deliveries of a dead letter. The broker counts each inspection as a delivery, and newer brokers drop
/// messages after twenty deliveries by default.
pub const DEAD_LETTER_DELIVERIES: u32 = 1_000_000;
/// Retention of dead letters.
pub const DEAD_LETTER_TTL: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time until an unused reply queue expires.
pub const REPLY_QUEUE_EXPIRY: Duration = Duration::from_secs(10 * 60);

impl QueueSpec {
    /// Creates the work queue of `key`, named after it.
    #[must_use]
    pub fn work(key: &RoutingKey) -> Self {
        let (name, bindings) = (QueueName(key.0.clone()), vec![key.into()]);
        let queue = Self::new(name, QueueKind::Work, bindings, WORK_QUEUE_LENGTH);
        Self { max_bytes: Some(WORK_QUEUE_BYTES), ..queue }
    }

    /// Creates the quarantine queue of `key`, for requests that may have crashed handlers; see
    /// [`quarantine_of`]. It shares the dead-letter queue of `key`.
    #[must_use]
    pub fn quarantine(key: &RoutingKey) -> Self {
        let dead_letters_as = QueueName(key.0.clone());
        Self { dead_letters_as, ..Self::work(&quarantine_of(key)) }
    }

    fn new(
        name: QueueName,
        kind: QueueKind,
        bindings: Vec<BindingPattern>,
        max_length: u32,
    ) -> Self {
        let dead_letters_as = name.clone();
        Self { dead_letters_as, name, kind, bindings, max_length, max_bytes: None }
    }

    /// Creates the reply queue of one process.
    #[must_use]
    pub fn reply(name: &RoutingKey, bindings: Vec<BindingPattern>) -> Self {
        let name = QueueName(name.0.clone());
        Self::new(name, QueueKind::Reply, bindings, PROCESS_QUEUE_LENGTH)
    }

    /// Creates the queue of one process for announcements with the key `topic`.
    #[must_use]
    pub fn exclusive(topic: &RoutingKey, instance: &InstanceId) -> Self {
        let name = QueueName(format!("{topic}.{}", key_segment(instance.as_str())).into());
        Self::new(name, QueueKind::Exclusive, vec![topic.into()], PROCESS_QUEUE_LENGTH)
    }

    /// Creates the queue that retains messages with the key `topic` for the next process, `<topic>.retained`.
    #[must_use]
    pub fn retained(topic: &RoutingKey) -> Self {
        let name = QueueName(format!("{topic}.retained").into());
        let queue = Self::new(name, QueueKind::Retained, vec![topic.into()], PROCESS_QUEUE_LENGTH);
        Self { max_bytes: Some(RETAINED_QUEUE_BYTES), ..queue }
    }

    /// Creates the queue of one process for requests to that process, named after their key. It is
    /// deleted with the process, so that requests to a dead process fail at once.
    #[must_use]
    pub fn inbox(key: &RoutingKey) -> Self {
        let name = QueueName(key.0.clone());
        Self::new(name, QueueKind::Exclusive, vec![key.into()], PROCESS_QUEUE_LENGTH)
    }

    /// Creates the queue of a monitor, `monitor.<instance>`. It is also bounded in bytes and drops its
    /// oldest message, so that it never rejects a message that other queues receive.
    #[must_use]
    pub fn monitor(instance: &InstanceId, bindings: Vec<BindingPattern>) -> Self {
        let name = QueueName(format!("{MONITOR}.{}", key_segment(instance.as_str())).into());
        let queue = Self::new(name, QueueKind::Exclusive, bindings, PROCESS_QUEUE_LENGTH);
        Self { max_bytes: Some(MONITOR_QUEUE_BYTES), ..queue }
    }

    /// Creates the dead-letter queue of the work queue `name`.
    #[must_use]
    pub fn dead_letters_of(name: &QueueName) -> Self {
        let name = name.dead_letters();
        let queue = Self::new(name, QueueKind::DeadLetters, Vec::new(), DEAD_LETTER_LENGTH);
        Self { max_bytes: Some(DEAD_LETTER_BYTES), ..queue }
    }

    /// Creates the dead-letter queue of this work queue.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        Self::dead_letters_of(&self.dead_letters_as)
    }

    /// Sets the length limit.
    #[must_use]
    pub fn with_max_length(mut self, messages: u32) -> Self {
        self.max_length = messages;
        self
    }

    /// Sets the size limit of the waiting messages.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }
}

pub(crate) const TOOL_RESULT: &str = "tool.result";
pub(crate) const TOOL_PROGRESS: &str = "tool.progress";
pub(crate) const TOOL_INVOKE_POOL: &str = "tool.invoke.pool";
pub(crate) const TOOL_INVOKE_MCP_AT: &str = "tool.invoke.mcp.at";
pub(crate) const MCP_MANAGE_AT: &str = "mcp.manage.at";
pub(crate) const MCP_MANAGE_RESPONSE: &str = "mcp.manage.response";
pub(crate) const SCRIPT_RESULT: &str = "script.result";
/// Family of the routing keys of messages to agents, `user.message.<agent>`.
pub const USER_MESSAGE: &str = "user.message";
/// Family of the routing keys of requests about conversations, `user.conversation.<agent>`.
pub const USER_CONVERSATION: &str = "user.conversation";
pub(crate) const USER_RESPONSE: &str = "user.response";
pub(crate) const USER_APPROVAL: &str = "user.approval";
pub(crate) const USER_INPUT: &str = "user.input";
pub(crate) const USER_NOTICE: &str = "user.notice";
pub(crate) const AGENT_TASK: &str = "agent.task";
pub(crate) const AGENT_TASK_CANCEL: &str = "agent.task.cancel";
pub(crate) const AGENT_RESPONSE: &str = "agent.response";
pub(crate) const MONITOR: &str = "monitor";
/// Name prefixes of reply queues.
pub(crate) const REPLY_FAMILIES: [&str; 4] =
    [TOOL_RESULT, MCP_MANAGE_RESPONSE, SCRIPT_RESULT, USER_RESPONSE];

macro_rules! fixed_key {
    ($(#[$doc:meta])* $name:ident = $key:literal) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name() -> RoutingKey {
            static KEY: LazyLock<RoutingKey> =
                LazyLock::new(|| RoutingKey::built($key.to_owned()));
            KEY.clone()
        }
    };
}

fixed_key!(
    /// Requests to run a tool.
    tool_invoke = "tool.invoke"
);
fixed_key!(
    /// Replies to requests without a reply-to.
    tool_result_default = "tool.result"
);
fixed_key!(
    /// Cancels, to every handler.
    tool_cancel = "tool.cancel"
);
fixed_key!(
    /// Tools of a handler, to every caller.
    tool_catalog_announce = "tool.catalog.announce"
);
fixed_key!(
    /// Request to every handler to announce its tools.
    tool_catalog_refresh = "tool.catalog.refresh"
);
fixed_key!(
    /// Requests to run a tool of an MCP server.
    tool_invoke_mcp = "tool.invoke.mcp"
);
fixed_key!(
    /// Tools of MCP servers, to every caller.
    tool_meta_mcp = "tool.meta.mcp"
);
fixed_key!(
    /// Request to every bridge to announce its MCP servers.
    tool_meta_mcp_refresh = "tool.meta.mcp.refresh"
);
fixed_key!(
    /// Requests to show, register or unregister an MCP server.
    mcp_manage = "mcp.manage"
);
fixed_key!(
    /// Messages that the command line program sends to itself to measure the round trip.
    doctor_ping = "doctor.ping"
);
fixed_key!(
    /// Requests to run a script.
    script_invoke = "script.invoke"
);
fixed_key!(
    /// Agents that can be asked, to every agent.
    discovery_announce = "discovery.announce"
);
fixed_key!(
    /// Request to every agent to announce itself.
    discovery_refresh = "discovery.refresh"
);

/// Requests to run a tool of an MCP server that only one bridge process serves:
/// `tool.invoke.mcp.at.<instance>`.
///
/// Requests that any bridge can run go to [`tool_invoke_mcp`].
#[must_use]
pub fn tool_invoke_mcp_at(bridge: &InstanceId) -> RoutingKey {
    RoutingKey::built(format!("{TOOL_INVOKE_MCP_AT}.{}", key_segment(bridge.as_str())))
}

/// Requests about MCP servers to one bridge process: `mcp.manage.at.<instance>`.
///
/// Requests that any bridge can process go to [`mcp_manage`].
#[must_use]
pub fn mcp_manage_at(bridge: &InstanceId) -> RoutingKey {
    RoutingKey::built(format!("{MCP_MANAGE_AT}.{}", key_segment(bridge.as_str())))
}

/// Requests of `key` that may have crashed handlers: `<key>.quarantine`. Only handlers publish there.
#[must_use]
pub fn quarantine_of(key: &RoutingKey) -> RoutingKey {
    RoutingKey::built(format!("{key}.quarantine"))
}

/// Request keys that a monitor receives, and each named pool's [`HandlerPool`](crate::HandlerPool)
/// key. Each has a work queue that outlives its consumers.
///
/// Keys of single processes are excluded: a copy for a monitor would make a request to a dead process
/// routable, and its caller would wait until the deadline.
#[must_use]
pub fn monitored_requests() -> [RoutingKey; 3] {
    [tool_invoke(), tool_invoke_mcp(), script_invoke()]
}

/// Patterns of replies, progress, cancels and announcements of tools, which a monitor receives along with
/// requests. The announcements name the pools.
#[must_use]
pub fn monitored_replies() -> Vec<BindingPattern> {
    let families = [TOOL_RESULT, TOOL_PROGRESS, SCRIPT_RESULT];
    let mut patterns: Vec<_> =
        families.iter().map(|family| BindingPattern::new(&format!("{family}.#"))).collect();
    patterns.extend([(&tool_cancel()).into(), (&tool_catalog_announce()).into()]);
    patterns
}

/// Messages of users to an agent: `user.message.<agent>`.
#[must_use]
pub fn user_message(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_MESSAGE}.{}", key_segment(agent.as_str())))
}

/// Messages to the process of an agent that runs their conversation, forwarded by another process of the
/// agent: `user.message.<agent>.at.<instance>`. Only processes of the agent publish there.
#[must_use]
pub fn user_message_at(agent: &AgentName, instance: &InstanceId) -> RoutingKey {
    let (inbox, instance) = (user_message(agent), key_segment(instance.as_str()));
    RoutingKey::built(format!("{inbox}.at.{instance}"))
}

/// Decisions of users on approval requests of an agent: `user.approval.<agent>`. Each process of the agent
/// receives them, and one of them receives a copy from a queue that outlives the processes.
#[must_use]
pub fn user_approval(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_APPROVAL}.{}", key_segment(agent.as_str())))
}

/// Responses of users to requests for input of an agent's calls: `user.input.<agent>`. Each process of the agent
/// receives them. No queue retains them: only the process that made the request can use one, so a publish
/// fails while no process runs.
#[must_use]
pub fn user_input(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_INPUT}.{}", key_segment(agent.as_str())))
}

/// Requests of users about their conversations with an agent: `user.conversation.<agent>`.
#[must_use]
pub fn user_conversation(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_CONVERSATION}.{}", key_segment(agent.as_str())))
}

/// Announcements of an agent to its users, outside of any conversation: `user.notice.<agent>`.
#[must_use]
pub fn user_notice(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_NOTICE}.{}", key_segment(agent.as_str())))
}

/// Replies of agents to the users of a client process: `user.response.<proxy>`.
#[must_use]
pub fn user_response(proxy: &InstanceId) -> RoutingKey {
    RoutingKey::built(format!("{USER_RESPONSE}.{}", key_segment(proxy.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, key: &str, expected: bool) {
        let key = RoutingKey::new(key).unwrap();
        assert_eq!(BindingPattern::new(pattern).matches(&key), expected, "{pattern} ~ {key}");
    }

    #[test]
    fn patterns_match_like_a_topic_exchange() {
        check("tool.invoke", "tool.invoke", true);
        check("tool.invoke", "tool.invoke.mcp", false);
        check("tool.*", "tool.invoke", true);
        check("tool.*", "tool", false);
        check("tool.*", "tool.invoke.mcp", false);
        check("tool.#", "tool", true);
        check("tool.#", "tool.a.b.c", true);
        check("#", "anything.at.all", true);
        check("#.result", "tool.result", true);
        check("#.result", "result", true);
        check("#.result.#", "a.b.result.c", true);
        check("*.#.end", "a.end", true);
        check("*.#.end", "end", false);
        check("a.#.b.#.c", "a.b.b.x.c", true);
        check("a.#.b.#.c", "a.x.c", false);
    }

    #[test]
    fn many_hashes_match_in_polynomial_time() {
        let pattern = vec!["#.a"; 30].join(".");
        let key = vec!["a"; 100].join(".") + ".b";
        check(&pattern, &key, false);
    }

    #[test]
    fn invalid_routing_key_is_rejected() {
        for bad in ["", ".", "a..b", "a.", "a.*", "#", "a b", "a\u{7}", &"x".repeat(256)] {
            assert!(RoutingKey::new(bad).is_err(), "{bad}");
        }
    }
}
