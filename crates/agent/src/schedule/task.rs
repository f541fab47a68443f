//! Scheduled tasks as they are stored.

use std::fmt;

use rockbot_contracts::{MessageId, SessionId, schedule::MAX_TASK_NAME_CHARS, user::TurnOutcome};
use rockbot_store::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Name of a task. Names that differ in case are the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct TaskName(String);

/// Error of a [`TaskName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a task must have 1 to {MAX_TASK_NAME_CHARS} letters, digits, spaces, `-` and `_`"
)]
pub(crate) struct InvalidTaskName;

impl TaskName {
    /// Validates a name, and removes white space around it.
    pub(crate) fn new(name: &str) -> Result<Self, InvalidTaskName> {
        let name = name.trim();
        let is_allowed = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        // Bounds the bytes first: a name can be long.
        let is_short =
            name.len() <= 4 * MAX_TASK_NAME_CHARS && name.chars().count() <= MAX_TASK_NAME_CHARS;
        if name.is_empty() || !is_short || !name.chars().all(is_allowed) {
            return Err(InvalidTaskName);
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the key of the task: the name in lower case, or its hash if the key would be long.
    pub(crate) fn key(&self) -> String {
        let lower = self.0.to_lowercase();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if lower.len() < MAX_TASK_NAME_CHARS && lower.chars().all(is_plain) {
            return lower;
        }
        hex(&Sha256::digest(lower))
    }
}

impl PartialEq for TaskName {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_lowercase() == other.0.to_lowercase()
    }
}

impl Eq for TaskName {}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TaskName {
    type Error = InvalidTaskName;
    fn try_from(name: String) -> Result<Self, InvalidTaskName> {
        Self::new(&name)
    }
}

impl From<TaskName> for String {
    fn from(name: TaskName) -> Self {
        name.0
    }
}

/// A scheduled task: one document of the store, changed only by a write that names its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduledTask {
    pub(crate) name: TaskName,
    /// Cron expression.
    pub(crate) cron: String,
    /// IANA zone of the task; `None` follows that of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    pub(crate) description: String,
    pub(crate) run_once: bool,
    pub(crate) created: Creation,
    /// Id of this definition. A task that replaces another one has a new one.
    pub(crate) revision: String,
    /// Time of the next fire; `None` if the task ends with its running turn.
    #[serde(default, with = "optional_millis", skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Timestamp>,
    /// IANA zone that `due` was computed in.
    pub(crate) due_zone: String,
    /// Time of a fire besides the schedule, which a person requested.
    #[serde(default, with = "optional_millis", skip_serializing_if = "Option::is_none")]
    pub(crate) requested: Option<Timestamp>,
    /// The only fire of the task, which was missed. The task is removed once its user was notified.
    #[serde(default, with = "optional_millis", skip_serializing_if = "Option::is_none")]
    pub(crate) missed: Option<Timestamp>,
    /// A user cancelled the task, which ends with its running turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cancelled: bool,
    /// The fire whose turn has no answer yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<Fire>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<LastFire>,
    #[serde(default)]
    pub(crate) counts: FireCounts,
}

impl ScheduledTask {
    /// Returns whether its only fire waits for the end of a running turn, which an earlier definition of the
    /// task or a request started. Skipped, it would never come.
    pub(super) fn has_to_wait(&self) -> bool {
        self.run_once && self.running.is_some()
    }
}

/// The creation of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Creation {
    #[serde(with = "millis")]
    pub(crate) at: Timestamp,
    /// The conversation; `None` for a person with the command line program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionId>,
    /// The broker user, if known. Only this user sees the task and its results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The task whose turn created it, or the one that this task descends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<TaskName>,
}

/// A fire: a turn in a conversation of its own. Its ids are computed from task and time, so that processes
/// that start it again continue the same turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fire {
    #[serde(with = "millis")]
    pub(crate) at: Timestamp,
    pub(crate) session: SessionId,
    pub(crate) message: MessageId,
    /// Text of the message, the same for all processes that start the turn.
    pub(crate) text: String,
}

/// The last fire with an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastFire {
    #[serde(with = "millis")]
    pub(crate) at: Timestamp,
    pub(crate) session: SessionId,
    #[serde(with = "millis")]
    pub(crate) ended: Timestamp,
    pub(crate) outcome: TurnOutcome,
    /// The answer, truncated.
    pub(crate) text: String,
}

/// Numbers of fires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FireCounts {
    pub(crate) fired: u64,
    pub(crate) missed: u64,
    pub(crate) overlapped: u64,
    pub(crate) failed: u64,
}

/// Returns bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Timestamps as Unix milliseconds.
pub(super) mod millis {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    pub(in super::super) fn serialize<S: Serializer>(
        at: &Timestamp,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(at.as_millis())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp::from_millis)
    }
}

mod optional_millis {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timestamp};

    #[expect(clippy::ref_option, reason = "the signature that serde requires")]
    pub(super) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_millis).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(deserializer)?.map(Timestamp::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_and_ignore_case() {
        for name in ["a", " Daily report ", "каждый_день", "𐐀𐐁", &"x".repeat(64)] {
            assert!(TaskName::new(name).is_ok(), "{name}");
        }
        for name in ["", "  ", "../x", "a|b", "a/b", "a\nb", "a*", "🙂", &"x".repeat(65)] {
            assert_eq!(TaskName::new(name), Err(InvalidTaskName), "{name}");
        }
        let name = |name| TaskName::new(name).unwrap();
        assert_eq!(name("Report"), name("REPORT"));
        assert_eq!(name("Report").key(), "report");
        assert_ne!(name("a b").key(), name("a-b").key());
        let longest = "𐐀".repeat(64);
        assert_eq!(name(&longest).key().len(), 64);
    }
}
