//! Exchanges, queues, routing keys and bindings: one file owns every name on the bus.
//!
//! Queue names here are bare (`tool.invoke`); an adapter puts the deployment's namespace before
//! them (`rockbot.tool.invoke`), so that several fleets can share a broker.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, InstanceId};

pub use crate::{
    reply_address::{
        ReplyAddress, asker_of, is_mcp_manage_reply, is_script_reply, is_tool_reply, is_user_reply,
        progress_key,
    },
    word::{stable_hash, word},
};

/// The namespace used when none is configured: the exchange's name and the prefix of every queue.
pub const DEFAULT_NAMESPACE: &str = "rockbot";

/// The longest routing key or queue name, in bytes: an AMQP short string.
pub const MAX_NAME_BYTES: usize = 255;

/// A name that the bus would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a routing key: 1 to {MAX_NAME_BYTES} bytes of words joined by single dots, no `*`, `#`, space or control character"
)]
pub struct InvalidRoutingKey {
    name: String,
}

/// The address on a message: words joined by dots, no wildcards.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RoutingKey(Arc<str>);

impl RoutingKey {
    /// Takes a routing key, from outside or built.
    ///
    /// # Errors
    /// When it is empty, over 255 bytes, has an empty word, a wildcard, a space or a control
    /// character.
    pub fn new(key: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidRoutingKey> {
        let text = key.as_ref();
        if text.len() > MAX_NAME_BYTES || has_empty_word(text) || has_bad_char(text) {
            return Err(InvalidRoutingKey { name: text.chars().take(64).collect() });
        }
        Ok(Self(key.into()))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// For keys made of the constants below and encoded words, which are valid by construction.
    pub(crate) fn built(key: String) -> Self {
        debug_assert!(Self::new(key.clone()).is_ok(), "{key}");
        Self(key.into())
    }

    pub(crate) fn is_in(&self, family: &str) -> bool {
        self.0.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

fn has_empty_word(key: &str) -> bool {
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
    // Every message's key is looked at, and nearly all are of these. Without an early end, which
    // lets the compiler look at many bytes at once.
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

/// A routing key or a pattern: `*` stands for one word, `#` for any number of words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BindingPattern(Box<str>);

impl BindingPattern {
    /// A pattern; a plain routing key is one.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether no wildcard is in it.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.contains(['*', '#'])
    }

    /// Whether a message with this key goes to a queue bound with this pattern, as a topic
    /// exchange of AMQP 0-9-1 decides it.
    #[must_use]
    pub fn matches(&self, key: &RoutingKey) -> bool {
        // Greedy matching with one point of return, so that many `#` can't take exponential time.
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
                Some(&word) if word == "*" || word == key[at_key] => {
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
        pattern[at_pattern..].iter().all(|word| *word == "#")
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

/// A queue's bare name, without the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// A queue name; the same rules as a routing key.
    ///
    /// # Errors
    /// When it would not be a valid routing key.
    pub fn new(name: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidRoutingKey> {
        RoutingKey::new(name).map(|key| Self(key.0))
    }

    /// The bare name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The queue that takes this one's dead letters.
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

/// What a queue is for; it decides how the broker keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// Shared by competing workers: replicated, bounded, refuses when full, dead-letters.
    Work,
    /// Answers for one process: survives a lost connection, goes away when left alone.
    Reply,
    /// Announcements for one process: gone with its connection, drops the oldest when full.
    Exclusive,
    /// What a work queue gave up: kept for a while, drops the oldest when full.
    DeadLetters,
}

/// A queue as its consumer wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// Bare name.
    pub name: QueueName,
    /// What it is for.
    pub kind: QueueKind,
    /// Which keys go into it.
    pub bindings: Vec<BindingPattern>,
    /// Most messages it holds.
    pub max_length: u32,
    /// Most bytes that their bodies have together; `None` for a queue that only counts.
    pub max_bytes: Option<u64>,
    /// Under which work queue's name its dead letters are kept: its own, unless it stands beside
    /// another.
    pub gives_up_as: QueueName,
    /// How often a work queue delivers a message before it gives it up.
    pub deliveries: u32,
}

/// How often a message of a work queue is delivered before it is dead-lettered.
pub const MAX_DELIVERIES: u32 = 5;
/// How often one of a quarantine queue is: it was delivered twice before, so this makes as many in
/// all.
pub const QUARANTINE_DELIVERIES: u32 = MAX_DELIVERIES - 2;
/// The reason that a bus gives for a dead letter that was delivered [`MAX_DELIVERIES`] times.
pub const DELIVERED_TOO_OFTEN: &str = "delivered too often";
/// Default cap on a work queue.
pub const WORK_QUEUE_LENGTH: u32 = 100_000;
/// Default cap on a reply queue or on one process's announcements.
pub const PROCESS_QUEUE_LENGTH: u32 = 10_000;
/// Cap on the bodies in the queue of somebody who watches: each is a copy that the broker keeps.
pub const MONITOR_QUEUE_BYTES: u64 = 64 * 1024 * 1024;
/// Cap on a dead-letter queue.
pub const DEAD_LETTER_LENGTH: u32 = 10_000;
/// How often a dead letter may be looked at and put back. The broker counts each look as a
/// delivery, and newer ones drop after twenty what has no limit of its own.
pub const DEAD_LETTER_LOOKS: u32 = 1_000_000;
/// How long a dead letter is kept.
pub const DEAD_LETTER_TTL: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a reply queue outlives its process.
pub const REPLY_QUEUE_EXPIRY: Duration = Duration::from_secs(10 * 60);

impl QueueSpec {
    /// A shared work queue named after the key it is bound with.
    #[must_use]
    pub fn work(key: &RoutingKey) -> Self {
        let (name, bindings) = (QueueName(key.0.clone()), vec![key.into()]);
        Self::new(name, QueueKind::Work, bindings, WORK_QUEUE_LENGTH)
    }

    /// The work queue beside that of `key`, for what workers were lost with; see [`quarantine_of`].
    /// It gives up to the same dead letters.
    #[must_use]
    pub fn quarantine(key: &RoutingKey) -> Self {
        let gives_up_as = QueueName(key.0.clone());
        Self { gives_up_as, deliveries: QUARANTINE_DELIVERIES, ..Self::work(&quarantine_of(key)) }
    }

    fn new(
        name: QueueName,
        kind: QueueKind,
        bindings: Vec<BindingPattern>,
        max_length: u32,
    ) -> Self {
        let (gives_up_as, deliveries) = (name.clone(), MAX_DELIVERIES);
        Self { gives_up_as, name, kind, bindings, max_length, max_bytes: None, deliveries }
    }

    /// One process's queue for answers.
    #[must_use]
    pub fn reply(name: &RoutingKey, bindings: Vec<BindingPattern>) -> Self {
        let name = QueueName(name.0.clone());
        Self::new(name, QueueKind::Reply, bindings, PROCESS_QUEUE_LENGTH)
    }

    /// One process's queue for announcements made with `pattern`.
    #[must_use]
    pub fn exclusive(topic: &RoutingKey, instance: &InstanceId) -> Self {
        let name = QueueName(format!("{topic}.{}", word(instance.as_str())).into());
        Self::new(name, QueueKind::Exclusive, vec![topic.into()], PROCESS_QUEUE_LENGTH)
    }

    /// One process's queue for requests to it alone, named after the key it is bound with. It is
    /// gone with its process, so that a request to one that died fails at once.
    #[must_use]
    pub fn inbox(key: &RoutingKey) -> Self {
        let name = QueueName(key.0.clone());
        Self::new(name, QueueKind::Exclusive, vec![key.into()], PROCESS_QUEUE_LENGTH)
    }

    /// The queue of somebody who watches and takes no part: `monitor.<instance>`. It is bounded in
    /// bytes too, and drops its oldest, so that it never refuses what others are to have.
    #[must_use]
    pub fn monitor(instance: &InstanceId, bindings: Vec<BindingPattern>) -> Self {
        let name = QueueName(format!("{MONITOR}.{}", word(instance.as_str())).into());
        let queue = Self::new(name, QueueKind::Exclusive, bindings, PROCESS_QUEUE_LENGTH);
        Self { max_bytes: Some(MONITOR_QUEUE_BYTES), ..queue }
    }

    /// The queue that keeps what the work queue `name` gave up.
    #[must_use]
    pub fn dead_letters_of(name: &QueueName) -> Self {
        let name = name.dead_letters();
        Self::new(name, QueueKind::DeadLetters, Vec::new(), DEAD_LETTER_LENGTH)
    }

    /// The queue that keeps what this work queue gives up.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        Self::dead_letters_of(&self.gives_up_as)
    }

    /// The same with another cap on its length.
    #[must_use]
    pub fn with_max_length(mut self, messages: u32) -> Self {
        self.max_length = messages;
        self
    }
}

pub(crate) const TOOL_RESULT: &str = "tool.result";
pub(crate) const TOOL_PROGRESS: &str = "tool.progress";
pub(crate) const TOOL_INVOKE_MCP_AT: &str = "tool.invoke.mcp.at";
pub(crate) const MCP_MANAGE_AT: &str = "mcp.manage.at";
pub(crate) const MCP_MANAGE_RESPONSE: &str = "mcp.manage.response";
pub(crate) const SCRIPT_RESULT: &str = "script.result";
pub(crate) const USER_MESSAGE: &str = "user.message";
pub(crate) const USER_RESPONSE: &str = "user.response";
pub(crate) const USER_APPROVAL: &str = "user.approval";
pub(crate) const MONITOR: &str = "monitor";
/// What the reply queues of processes are named after.
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
    /// Answers to requests that named no reply-to.
    tool_result_default = "tool.result"
);
fixed_key!(
    /// Cancels, to every worker.
    tool_cancel = "tool.cancel"
);
fixed_key!(
    /// What a worker runs, to every agent.
    tool_catalog_announce = "tool.catalog.announce"
);
fixed_key!(
    /// An agent asks every worker to announce itself.
    tool_catalog_refresh = "tool.catalog.refresh"
);
fixed_key!(
    /// Requests to run a tool of an MCP server.
    tool_invoke_mcp = "tool.invoke.mcp"
);
fixed_key!(
    /// What MCP servers offer, to every agent.
    tool_meta_mcp = "tool.meta.mcp"
);
fixed_key!(
    /// An agent asks every bridge what its MCP servers offer.
    tool_meta_mcp_refresh = "tool.meta.mcp.refresh"
);
fixed_key!(
    /// Requests to show, register or unregister an MCP server.
    mcp_manage = "mcp.manage"
);
fixed_key!(
    /// What the command line program sends to itself, to measure a round trip.
    doctor_ping = "doctor.ping"
);
fixed_key!(
    /// Requests to run a script.
    script_invoke = "script.invoke"
);

/// Requests to run a tool of an MCP server that one bridge process has:
/// `tool.invoke.mcp.at.<instance>`.
///
/// What every bridge has goes to [`tool_invoke_mcp`].
#[must_use]
pub fn tool_invoke_mcp_at(bridge: &InstanceId) -> RoutingKey {
    RoutingKey::built(format!("{TOOL_INVOKE_MCP_AT}.{}", word(bridge.as_str())))
}

/// Requests about MCP servers that one bridge process has: `mcp.manage.at.<instance>`.
///
/// What any bridge can do goes to [`mcp_manage`]; what only the one that has the server can do goes
/// to that one.
#[must_use]
pub fn mcp_manage_at(bridge: &InstanceId) -> RoutingKey {
    RoutingKey::built(format!("{MCP_MANAGE_AT}.{}", word(bridge.as_str())))
}

/// `<key>.quarantine`: requests of `key`, one of this file's, that workers were lost with. Only workers
/// send there.
#[must_use]
pub fn quarantine_of(key: &RoutingKey) -> RoutingKey {
    RoutingKey::built(format!("{key}.quarantine"))
}

/// The requests for calls that a monitor hears. Each has a work queue that outlives its workers.
///
/// The keys of single processes are not among them: a copy for a monitor would make a request
/// routable that nobody serves any more, and its asker would wait in vain.
#[must_use]
pub fn monitored_requests() -> [RoutingKey; 3] {
    [tool_invoke(), tool_invoke_mcp(), script_invoke()]
}

/// What a monitor hears of calls besides requests: answers, progress, cancels.
#[must_use]
pub fn monitored_answers() -> Vec<BindingPattern> {
    let families = [TOOL_RESULT, TOOL_PROGRESS, SCRIPT_RESULT];
    let mut patterns: Vec<_> =
        families.iter().map(|family| BindingPattern::new(&format!("{family}.#"))).collect();
    patterns.push((&tool_cancel()).into());
    patterns
}

/// `user.message.<agent>`.
#[must_use]
pub fn user_message(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_MESSAGE}.{}", word(agent.as_str())))
}

/// `user.approval.<agent>`: what people say to questions of the agent's processes.
#[must_use]
pub fn user_approval(agent: &AgentName) -> RoutingKey {
    RoutingKey::built(format!("{USER_APPROVAL}.{}", word(agent.as_str())))
}

/// `user.response.<proxy>`.
#[must_use]
pub fn user_response(proxy: &InstanceId) -> RoutingKey {
    RoutingKey::built(format!("{USER_RESPONSE}.{}", word(proxy.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, key: &str, expected: bool) {
        let key = RoutingKey::new(key).unwrap();
        assert_eq!(BindingPattern::new(pattern).matches(&key), expected, "{pattern} ~ {key}");
    }

    #[test]
    fn patterns_match_as_a_topic_exchange_does() {
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
    fn many_hashes_stay_quick() {
        let pattern = vec!["#.a"; 30].join(".");
        let key = vec!["a"; 100].join(".") + ".b";
        check(&pattern, &key, false);
    }

    #[test]
    fn bad_keys_are_refused() {
        for bad in ["", ".", "a..b", "a.", "a.*", "#", "a b", "a\u{7}", &"x".repeat(256)] {
            assert!(RoutingKey::new(bad).is_err(), "{bad}");
        }
    }
}
