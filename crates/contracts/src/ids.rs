//! Ids on the wire, each with its own type so that they can't be confused.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// Maximum length of an id in bytes: that of an AMQP short string.
pub const MAX_ID_BYTES: usize = 255;

/// Error for an id that is empty, too long, or contains control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be 1 to {MAX_ID_BYTES} bytes without control characters, got {got}")]
pub struct InvalidId {
    kind: &'static str,
    got: String,
}

fn has_control(id: &str) -> bool {
    // Without an early exit, so that the compiler can vectorize the loop.
    let plain = id.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    !plain && id.chars().any(char::is_control)
}

/// Deserializes an id from borrowed or owned text.
struct IdVisitor<T>(&'static str, fn(&str) -> Result<T, InvalidId>);

impl<T> de::Visitor<'_> for IdVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.1(text).map_err(E::custom)
    }
}

// A call's ids are cloned into many tasks, messages and maps, hence `Arc`.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates an external id.
            ///
            /// # Errors
            /// When it is empty, longer than [`MAX_ID_BYTES`], or contains a control character.
            pub fn new(id: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidId> {
                let text = id.as_ref();
                if text.is_empty() || text.len() > MAX_ID_BYTES || has_control(text) {
                    let got = format!("{} bytes", text.len());
                    return Err(InvalidId { kind: $kind, got });
                }
                Ok(Self(id.into()))
            }

            /// Generates an id: a UUID v7 in simple form, so that ids sort by time.
            #[must_use]
            pub fn generate() -> Self {
                let mut buffer = Uuid::encode_buffer();
                Self(Arc::from(&*Uuid::now_v7().simple().encode_lower(&mut buffer)))
            }

            /// Returns the id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(IdVisitor($kind, |text| Self::new(text)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

id!(
    /// Id of a message; new for every publish.
    MessageId,
    "a message id"
);
id!(
    /// Id of a tool call.
    ///
    /// It is the correlation id of all messages about the call, so callers make it unique across the
    /// fleet. The id that the model assigned is used only within the conversation.
    ToolCallId,
    "a tool call id"
);
id!(
    /// Id of an approval request.
    ApprovalId,
    "an approval id"
);
id!(
    /// Id of a request for input.
    InputId,
    "an input id"
);
id!(
    /// Id of work that an agent delegated, such as to a sub-agent.
    TaskId,
    "a task id"
);
id!(
    /// Id of a conversation with an agent.
    SessionId,
    "a session id"
);
id!(
    /// Configured name of an agent or service, shared by its replicas.
    AgentName,
    "an agent name"
);
id!(
    /// Id of a running process. It keeps the replies of replicas apart.
    InstanceId,
    "an instance id"
);

impl TaskId {
    /// Start of the ids of conversations that do delegated work.
    pub const SESSION_PREFIX: &'static str = "subagent-";

    /// Returns the work that a conversation does.
    #[must_use]
    pub fn from_session(session: &SessionId) -> Option<Self> {
        Self::new(session.as_str().strip_prefix(Self::SESSION_PREFIX)?).ok()
    }

    /// Returns the conversation that does the work; `None` if the id is too long.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        SessionId::new(format!("{}{self}", Self::SESSION_PREFIX)).ok()
    }
}

impl From<&ToolCallId> for SessionId {
    /// Returns the session of a call that belongs to no other.
    fn from(call: &ToolCallId) -> Self {
        Self(call.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_simple_uuids_sorted_by_time() {
        let ids: Vec<_> = (0..100).map(|_| ToolCallId::generate()).collect();
        assert!(ids.iter().all(|id| id.as_str().len() == 32 && !id.as_str().contains('-')));
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn external_id_is_validated() {
        assert!(SessionId::new("").is_err());
        assert!(SessionId::new("a\nb").is_err());
        assert!(SessionId::new("x".repeat(256)).is_err());
        assert!(SessionId::new("x".repeat(255)).is_ok());
        assert!(serde_json::from_str::<SessionId>("\"\"").is_err());
    }
}
