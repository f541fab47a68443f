//! Errors of operations on dead letters.

use rockbot_bus::{ConsumeError, PublishError, SettleError};
use rockbot_contracts::QueueName;

/// Why an operation on dead letters failed.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    /// The dead-letter queue does not exist.
    #[error(
        "the dead-letter queue of {queue} does not exist: it is created with the first consumer of \
         {queue}; check the name, --bus and bus.namespace, or list the queues with `rockbot dlq list`"
    )]
    NoSuchQueue {
        /// The work queue.
        queue: QueueName,
    },
    /// The broker user may not read the dead letters.
    #[error("this user may not read the dead letters of {queue}")]
    NotPermitted {
        /// The work queue.
        queue: QueueName,
    },
    /// No dead letter has this id. Nothing was changed.
    #[error(
        "message id {id} not found among the oldest {searched} dead letters of {queue}; nothing was \
         changed"
    )]
    NotFound {
        /// The message id.
        id: String,
        /// The number of letters searched.
        searched: u32,
        /// The work queue.
        queue: QueueName,
    },
    /// The name of the queue is no routing key, so no work queue has it.
    #[error("{queue} is not the name of a work queue")]
    NoWorkQueue {
        /// The queue.
        queue: QueueName,
    },
    /// The bus is unavailable, or refuses the queue.
    #[error(transparent)]
    Bus(#[from] ConsumeError),
    /// A letter was not sent again. It stays in the queue.
    #[error("cannot resend dead letter {id}")]
    Publish {
        /// The message id of the letter, with invisible characters escaped.
        id: String,
        /// The cause.
        #[source]
        source: PublishError,
    },
    /// A letter was sent again, but its dead letter may remain.
    #[error("a message was resent, but its dead letter remains")]
    Remains(#[source] SettleError),
    /// A letter was not deleted.
    #[error("cannot delete dead letter {id}")]
    Delete {
        /// The message id of the letter.
        id: String,
        /// The cause.
        #[source]
        source: SettleError,
    },
}
