//! Errors of stored outputs.

use std::time::Duration;

use rockbot_store::{InvalidKey, StoreError};

/// Error of storing or reading an output.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The output exceeds the quota of a conversation.
    #[error("output too large: {bytes} bytes; outputs.session_bytes is {limit}")]
    TooLarge {
        /// Size of the output.
        bytes: usize,
        /// Quota.
        limit: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not reply in time.
    #[error("the store did not reply within {0:?}")]
    Slow(Duration),
    /// The stored data is invalid, or the output could not be encoded.
    #[error("invalid output data: {0}")]
    Unusable(String),
}

impl From<InvalidKey> for OutputError {
    fn from(error: InvalidKey) -> Self {
        Self::Unusable(error.to_string())
    }
}
