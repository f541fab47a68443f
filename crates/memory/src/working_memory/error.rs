//! Errors of working memory.

use rockbot_contracts::Executed;
use rockbot_store::{DocumentError, StoreError};
use rockbot_tools::failure::ToolFailure;

/// Why an operation of working memory failed. Models read the messages, too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkingMemoryError {
    /// The key or namespace is invalid.
    #[error("invalid key: {reason}")]
    Key {
        /// The cause.
        reason: String,
    },
    /// The key belongs to another owner.
    #[error(
        "the key belongs to another conversation; use one without a slash, or below `subagent/` and the id \
         of an own sub-agent"
    )]
    Foreign,
    /// The category or a tag is invalid.
    #[error("{reason}")]
    Label {
        /// The cause.
        reason: String,
    },
    /// The entry is too large.
    #[error("the data has {bytes} bytes, over the limit of {limit} for an entry; save it in parts")]
    TooLarge {
        /// The size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A limit is reached. No entry was removed.
    #[error("working memory is full: {reason}; delete entries that are no longer needed")]
    Full {
        /// The reached limit.
        reason: String,
    },
    /// Concurrent changes of the same entry prevented the operation.
    #[error("the entry is being changed concurrently; try again")]
    Contended,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<DocumentError> for WorkingMemoryError {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::Name(reason) => Self::Key { reason: reason.to_string() },
            DocumentError::Store(error) => Self::Store(error),
        }
    }
}

impl From<WorkingMemoryError> for ToolFailure {
    fn from(error: WorkingMemoryError) -> Self {
        match error {
            WorkingMemoryError::Foreign => Self::NotPermitted { reason: error.to_string() },
            WorkingMemoryError::Contended => {
                Self::Unavailable { message: error.to_string(), executed: Executed::No }
            }
            WorkingMemoryError::Store(error) => error.into(),
            WorkingMemoryError::Key { .. }
            | WorkingMemoryError::Label { .. }
            | WorkingMemoryError::TooLarge { .. }
            | WorkingMemoryError::Full { .. } => Self::invalid(error.to_string()),
        }
    }
}
