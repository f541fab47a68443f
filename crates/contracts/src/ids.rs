//! Ids that cross the bus, each a type of its own so that one can't be passed for another.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// The longest id accepted from outside, in bytes: an AMQP short string.
pub const MAX_ID_BYTES: usize = 255;

/// An id that can't be used: empty, too long, or with control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 1 to {MAX_ID_BYTES} bytes without control characters, got {got}")]
pub struct InvalidId {
    what: &'static str,
    got: String,
}

fn has_control(id: &str) -> bool {
    // Without an early end, which lets the compiler look at many bytes at once.
    let plain = id.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    !plain && id.chars().any(char::is_control)
}

/// Reads an id from text, wherever the text is.
struct Read<T>(&'static str, fn(&str) -> Result<T, InvalidId>);

impl<T> de::Visitor<'_> for Read<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.1(text).map_err(E::custom)
    }
}

// Ids are cloned into every task, message and map that a call touches, hence `Arc`.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes an id from outside.
            ///
            /// # Errors
            /// When it is empty, longer than [`MAX_ID_BYTES`], or holds a control character.
            pub fn new(id: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, InvalidId> {
                let text = id.as_ref();
                if text.is_empty() || text.len() > MAX_ID_BYTES || has_control(text) {
                    let got = format!("{} bytes", text.len());
                    return Err(InvalidId { what: $what, got });
                }
                Ok(Self(id.into()))
            }

            /// A fresh id: a UUID v7 in its simple form, so that ids sort by time.
            #[must_use]
            pub fn generate() -> Self {
                let mut buffer = Uuid::encode_buffer();
                Self(Arc::from(&*Uuid::now_v7().simple().encode_lower(&mut buffer)))
            }

            /// The id as text.
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
                deserializer.deserialize_str(Read($what, |text| Self::new(text)))
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
    /// One message on the bus. Fresh for every publish.
    MessageId,
    "a message id"
);
id!(
    /// One tool call, from the model's request to the answer.
    ///
    /// It is the correlation id of everything said about the call, so the asker makes it unique
    /// across the fleet; the id that a model gave the call stays in the conversation.
    ToolCallId,
    "a tool call id"
);
id!(
    /// One question to a person whether a call may run.
    ApprovalId,
    "an approval id"
);
id!(
    /// One conversation with an agent.
    SessionId,
    "a session id"
);
id!(
    /// The configured name of an agent or of a service, the same for all its replicas.
    AgentName,
    "an agent name"
);
id!(
    /// One running process, so that two replicas of one agent never take each other's replies.
    InstanceId,
    "an instance id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_simple_sorted_and_distinct() {
        let ids: Vec<_> = (0..100).map(|_| ToolCallId::generate()).collect();
        assert!(ids.iter().all(|id| id.as_str().len() == 32 && !id.as_str().contains('-')));
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn ids_from_outside_are_checked() {
        assert!(SessionId::new("").is_err());
        assert!(SessionId::new("a\nb").is_err());
        assert!(SessionId::new("x".repeat(256)).is_err());
        assert!(SessionId::new("x".repeat(255)).is_ok());
        assert!(serde_json::from_str::<SessionId>("\"\"").is_err());
    }
}
