//! Errors of working memory.

use rockbot_contracts::Executed;
use rockbot_store::{ShelfError, StoreError};
use rockbot_tools::failure::ToolFailure;

/// Why an operation of working memory failed. Models read the message, too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkingMemoryError {
    /// The key or namespace can't be used.
    #[error("that key can't be used: {reason}")]
    Key {
        /// What is wrong with it.
        reason: String,
    },
    /// The key belongs to another owner.
    #[error("that key belongs to another conversation; leave out `session/` and its id")]
    Foreign,
    /// The category or a tag can't be used.
    #[error("{reason}")]
    Label {
        /// What is wrong with it.
        reason: String,
    },
    /// The entry is too large.
    #[error("the data has {bytes} bytes, at most {limit} fit into one entry; save it in parts")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no room. Nothing was dropped to make some.
    #[error("working memory is full: {reason}; delete entries that are no longer needed")]
    Full {
        /// What is used up.
        reason: String,
    },
    /// Others kept changing the same entry. It was not saved.
    #[error("the entry is being changed by others at the same time; try again")]
    Contended,
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ShelfError> for WorkingMemoryError {
    fn from(error: ShelfError) -> Self {
        match error {
            ShelfError::Name(reason) => Self::Key { reason: reason.to_string() },
            ShelfError::Store(error) => Self::Store(error),
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
