//! Payload types and their decoding.

use serde::{Serialize, de::DeserializeOwned};

use crate::{envelope::Envelope, json};

/// A payload type with a name on the wire.
pub trait Message: Serialize + DeserializeOwned + Send + 'static {
    /// Bare record name, as in the message type of the envelope.
    const TYPE: &'static str;
}

/// Decoding errors. Each names what the peer must change.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message type is not the expected one.
    #[error("expected a message of type {expected}, got {got:?}")]
    UnexpectedType {
        /// Expected message type.
        expected: &'static str,
        /// Received message type, truncated.
        got: String,
    },
    /// The wire version of the peer is newer than that of this build.
    #[error("wire version {got} is newer than the {supported} this process reads; upgrade it")]
    NewerWire {
        /// The version in the envelope.
        got: u32,
        /// The version of this build.
        supported: u32,
    },
    /// The body is over the size limit.
    #[error("the body has {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// The size of the body.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The body nests deeper than the limit.
    #[error("the body nests deeper than {limit} levels")]
    TooDeep {
        /// The limit in force.
        limit: usize,
    },
    /// The body is not the JSON of this record.
    #[error("the body is not a valid {expected}: {reason}")]
    Malformed {
        /// Expected message type.
        expected: &'static str,
        /// Error of the parser, truncated: it quotes unexpected input, possibly all of a hostile
        /// body.
        reason: String,
    },
}

impl Envelope {
    /// Decodes the payload after checking wire version, type and size, in this order.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode<M: Message>(&self, limits: json::Limits) -> Result<M, DecodeError> {
        if self.wire > crate::headers::WIRE_VERSION {
            let supported = crate::headers::WIRE_VERSION;
            return Err(DecodeError::NewerWire { got: self.wire, supported });
        }
        if self.message_type() != M::TYPE {
            let got = self.message_type().chars().take(64).collect();
            return Err(DecodeError::UnexpectedType { expected: M::TYPE, got });
        }
        if self.body.len() > limits.bytes {
            return Err(DecodeError::TooLarge { bytes: self.body.len(), limit: limits.bytes });
        }
        let malformed = |reason| DecodeError::Malformed { expected: M::TYPE, reason };
        // Checked as a whole here, or the parser checks string by string.
        let text = str::from_utf8(&self.body).map_err(|error| malformed(error.to_string()))?;
        serde_json::from_str(text).map_err(|source| {
            if json::is_too_deep(&source) {
                return DecodeError::TooDeep { limit: json::MAX_DEPTH };
            }
            malformed(json::describe_error(&source))
        })
    }
}

/// Returns whether messages of this type precede the reply to a request.
#[must_use]
pub fn is_interim(message_type: &str) -> bool {
    message_type == crate::tool::ToolProgress::TYPE
}
