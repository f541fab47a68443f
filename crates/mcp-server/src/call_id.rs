//! Identifiers of calls, derived from what identifies the client's request.

use std::fmt::Write;

use rmcp::model::RequestId;
use rockbot_contracts::ToolCallId;
use sha2::{Digest, Sha256};

/// Length of an identifier, in bytes before encoding.
const ID_BYTES: usize = 16;

/// The identity of a request: a request with the same one is the same call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestIdentity {
    /// A key that the client chose.
    Key(String),
    /// The id of a request within a session, which a client must not use for another request.
    InSession {
        /// Identifier of the session, unique across the fleet.
        session: String,
        /// Identifier of the request.
        request: RequestId,
    },
    /// Nothing: a request without a key and without a session.
    Unknown,
}

impl RequestIdentity {
    /// Returns the identifier of the call that `content` describes. It is the same in every process.
    ///
    /// A key stands for one call: with another content, it is refused where the call is recorded. The id of a
    /// request does not: clients that count from 1 again after a reconnect must not get a former result.
    pub(crate) fn call_id(&self, client: &str, content: &CallContent) -> ToolCallId {
        let mut hash = Sha256::new();
        match self {
            Self::Key(key) => add_fields(&mut hash, &["key", client, key]),
            Self::InSession { session, request } => {
                let (kind, request) = match request {
                    RequestId::Number(number) => ("number", number.to_string()),
                    RequestId::String(text) => ("string", text.to_string()),
                };
                add_fields(&mut hash, &["session", client, session, kind, &request]);
                hash.update(content.0);
            }
            Self::Unknown => return ToolCallId::generate(),
        }
        let id = ToolCallId::new(hex(&hash.finalize()[..ID_BYTES]));
        id.unwrap_or_else(|_| ToolCallId::generate())
    }

    /// Returns whether a repetition of the request can be recognized.
    pub(crate) fn is_known(&self) -> bool {
        *self != Self::Unknown
    }
}

/// A digest of the tool and the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallContent([u8; 32]);

impl CallContent {
    pub(crate) fn new(tool: &str, arguments: &str) -> Self {
        let mut hash = Sha256::new();
        add_fields(&mut hash, &[tool, arguments]);
        Self(hash.finalize().into())
    }
}

/// Adds texts with their lengths, so that different texts never have the same encoding.
fn add_fields(hash: &mut Sha256, fields: &[&str]) {
    for field in fields {
        hash.update(field.len().to_be_bytes());
        hash.update(field.as_bytes());
    }
}

/// Returns bytes in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_session(session: &str, request: RequestId) -> RequestIdentity {
        RequestIdentity::InSession { session: session.to_owned(), request }
    }

    #[test]
    fn repeated_request_has_same_call_id() {
        let content = CallContent::new("write", "{}");
        for identity in [
            RequestIdentity::Key("k".to_owned()),
            in_session("s", RequestId::Number(1)),
            in_session("s", RequestId::String("1".into())),
        ] {
            let id = identity.call_id("client", &content);
            assert_eq!(id, identity.call_id("client", &content));
            assert_eq!(id.as_str().len(), 32);
            assert_ne!(id, identity.call_id("another", &content));
        }
        let unknown = RequestIdentity::Unknown;
        assert_ne!(unknown.call_id("client", &content), unknown.call_id("client", &content));
    }

    #[test]
    fn different_requests_have_different_call_ids() {
        let content = CallContent::new("write", "{}");
        let ids = [
            RequestIdentity::Key("s1".to_owned()),
            in_session("s", RequestId::Number(1)),
            in_session("s", RequestId::String("1".into())),
            in_session("s1", RequestId::Number(1)),
            in_session("s", RequestId::Number(2)),
        ]
        .map(|identity| identity.call_id("client", &content));
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{index}");
        }
    }

    #[test]
    fn content_distinguishes_requests_of_a_session_but_not_keys() {
        let (one, other) = (CallContent::new("write", "{}"), CallContent::new("writ", "e{}"));
        assert_ne!(one, other);
        let request = in_session("s", RequestId::Number(1));
        assert_ne!(request.call_id("client", &one), request.call_id("client", &other));
        let key = RequestIdentity::Key("k".to_owned());
        assert_eq!(key.call_id("client", &one), key.call_id("client", &other));
    }
}
