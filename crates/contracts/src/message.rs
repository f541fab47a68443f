//! Payload types and decoding errors.

use serde::{Serialize, de::DeserializeOwned};

/// A payload type.
pub trait Message: Serialize + DeserializeOwned + Send + 'static {
    /// Message type: the bare record name, without a qualifier.
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
    #[error(
        "wire version {got} is newer than the supported version {supported}; upgrade this process"
    )]
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
