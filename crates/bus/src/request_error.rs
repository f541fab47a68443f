//! Errors of requests.

use std::time::Duration;

use crate::port::{ConsumeError, PublishError};

/// Errors of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The request was not published, or not confirmed.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The reply queue can't be consumed, so the request was not sent.
    #[error("cannot receive replies: {0}")]
    Subscribe(#[from] ConsumeError),
    /// No reply came in time. The request may still be processed.
    #[error("no reply within {after:?}")]
    TimedOut {
        /// Time budget of the handler.
        after: Duration,
    },
    /// The limit on requests in flight was reached until the deadline, or until the caller gave up, so
    /// the request was never sent.
    #[error("request not sent within {after:?}: {limit} requests are in flight")]
    NeverSent {
        /// Time budget of the request.
        after: Duration,
        /// Limit on requests in flight.
        limit: usize,
    },
    /// Another pending request has this correlation id, or the envelope has none.
    #[error("correlation id {id:?} is missing or in use")]
    BadCorrelationId {
        /// The id.
        id: String,
    },
    /// The limit on pending requests is reached.
    #[error("{limit} requests are already pending")]
    TooManyPending {
        /// The limit in force.
        limit: usize,
    },
    /// The requester stopped before a reply arrived.
    #[error("stopped before a reply arrived")]
    Stopped,
}
