//! Errors of stored outputs.

use std::time::Duration;

use rockbot_store::{InvalidKey, StoreError};

/// Why a text was not stored, or not found.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It has more bytes than a conversation may have.
    #[error("the output has {bytes} bytes, over the limit of {limit} in outputs.session_bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The store has a problem.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store took too long.
    #[error("the store did not answer within {0:?}")]
    Slow(Duration),
    /// What is in the store is not what was put there, or could not be put there at all.
    #[error("the output can't be written or read: {0}")]
    Unusable(String),
}

impl From<InvalidKey> for KeepError {
    fn from(error: InvalidKey) -> Self {
        Self::Unusable(error.to_string())
    }
}
