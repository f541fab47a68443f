//! Errors of stored conversations.

use rockbot_contracts::{MessageId, SessionId};
use rockbot_store::StoreError;

use super::entry::VERSION;

/// Reason why an entry cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// A newer version of the program wrote it.
    #[error(
        "has version {version}, and this program reads up to version {VERSION}; update the program"
    )]
    Newer {
        /// Version of the entry.
        version: u32,
    },
    /// It is not a valid entry.
    #[error("is damaged; export the readable part, then delete the conversation")]
    Damaged,
    /// It is missing.
    #[error("is missing; export the readable part, then delete the conversation")]
    Missing,
    /// It exceeds the size limit.
    #[error("has {bytes} bytes, over the limit of 1 MiB; ask for less at once")]
    TooLarge {
        /// Encoded size in bytes.
        bytes: usize,
    },
}

/// Error of an operation on a stored conversation. Other conversations are not affected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversationError {
    /// The conversation does not exist.
    #[error("no conversation {session} is stored; it expired or was deleted")]
    NotFound {
        /// The conversation.
        session: SessionId,
    },
    /// The conversation exists, and has no such message.
    #[error("conversation {session} has no message {id}; rate an answer of this conversation")]
    MessageNotFound {
        /// The conversation.
        session: SessionId,
        /// The message.
        id: MessageId,
    },
    /// Feedback was not recorded, because other processes changed the conversation between the attempts.
    #[error("conversation {session} changes too often to record feedback; try again")]
    FeedbackConflict {
        /// The conversation.
        session: SessionId,
    },
    /// An entry cannot be read.
    #[error("the stored conversation {session} cannot be read: entry {number} {problem}")]
    Unreadable {
        /// The conversation.
        session: SessionId,
        /// Number of the entry.
        number: u64,
        /// The problem.
        #[source]
        problem: EntryProblem,
    },
    /// An entry cannot be written.
    #[error("the conversation {session} cannot be recorded: an entry {problem}")]
    Unwritable {
        /// The conversation.
        session: SessionId,
        /// The problem.
        #[source]
        problem: EntryProblem,
    },
    /// The session id is too long for the store.
    #[error("the session id is too long to be stored; use at most 128 letters and digits")]
    InvalidSession,
    /// Another process continues the conversation.
    #[error("another process continues the conversation {session}; send the message again")]
    Fenced {
        /// The conversation.
        session: SessionId,
    },
    /// The store failed.
    #[error("the store of conversations failed: {0}")]
    Store(#[from] StoreError),
}

impl ConversationError {
    /// Returns `true` if another process changed the log.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }

    /// Returns `true` if another process changed or deleted the log.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::NotFound { .. })
    }

    /// Returns `true` if the store was unavailable: a retry may succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. }))
    }

    /// Returns `true` if the change may have been made.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unconfirmed { .. }))
    }

    /// Returns `true` if the stored conversation itself is unusable: a retry does not help.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }
}
