//! What makes a payload a message, and how one is read.

use serde::{Serialize, de::DeserializeOwned};

use crate::{envelope::Envelope, json};

/// A payload with its name on the wire.
pub trait Message: Serialize + DeserializeOwned + Send + 'static {
    /// The bare record name, as in the envelope's message type.
    const TYPE: &'static str;
}

/// Why a message could not be read. Each says what a peer must change.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The envelope names another record than the one this consumer reads.
    #[error("expected a message of type {expected}, got {got:?}")]
    UnexpectedType {
        /// What the consumer reads.
        expected: &'static str,
        /// What the envelope said, shortened.
        got: String,
    },
    /// The peer speaks a newer wire than this build.
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
        /// What the consumer reads.
        expected: &'static str,
        /// What the parser said, shortened: it quotes what it did not expect, which may be all of
        /// a hostile body.
        reason: String,
    },
}

impl Envelope {
    /// Reads the payload, after checking wire version, type and size, in this order.
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
            malformed(json::words_of(&source))
        })
    }
}

/// Whether messages of this type come before the answer to a request, not in its place.
#[must_use]
pub fn is_interim(message_type: &str) -> bool {
    message_type == crate::tool::ToolProgress::TYPE
}
