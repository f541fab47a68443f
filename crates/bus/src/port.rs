//! What every bus can do.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{Envelope, QueueName, QueueSpec, RoutingKey};
use tokio::sync::watch;

use crate::{delivery::Delivery, report::BusReport};

/// A way to carry messages between processes, or between tasks of one.
///
/// Connections come and go behind it: a consumer survives a lost connection, a publish fails with
/// an error that says whether the message may have gone out.
pub trait Bus: Send + Sync + 'static {
    /// Publishes a message. With [`Assurance::Confirmed`] it returns when the bus has taken
    /// responsibility for it.
    ///
    /// # Cancellation
    /// Dropping the future leaves the message either published or not.
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>>;

    /// Declares a queue with its bindings and starts to consume it. When this returns, messages
    /// for the queue are kept for the consumer.
    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>>;

    /// What an operator wants to know about the bus and the named queues.
    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>>;

    /// Whether messages can be carried now: true only when connected and every consumer that was
    /// subscribed is consuming.
    fn is_ready(&self) -> bool;

    /// Ends all consumers and gives the bus up, in order. Publishing afterwards fails with
    /// [`PublishError::Closed`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What is known of a message when `publish` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// The bus has it: routed, and on disk where the queue is durable.
    Confirmed,
    /// It was handed over. For progress and announcements, where waiting costs more than a loss.
    Sent,
}

/// A message on its way out.
#[derive(Debug, Clone)]
pub struct Publication {
    /// Where it goes.
    pub key: RoutingKey,
    /// What it says.
    pub envelope: Envelope,
    /// Whether it is an error that no queue is bound for it.
    pub mandatory: bool,
    /// What the caller waits for.
    pub assurance: Assurance,
    /// How long to wait for a connection and a confirm. Default 10 s.
    pub timeout: Duration,
}

impl Publication {
    /// The default time-out of a publish.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// A request or an answer: confirmed, and an error when nobody is bound for it.
    #[must_use]
    pub fn mandatory(key: RoutingKey, envelope: Envelope) -> Self {
        Self {
            key,
            envelope,
            mandatory: true,
            assurance: Assurance::Confirmed,
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }

    /// Something said to whoever listens; nobody may.
    #[must_use]
    pub fn announcement(key: RoutingKey, envelope: Envelope) -> Self {
        Self {
            mandatory: false,
            assurance: Assurance::Sent,
            ..Self::mandatory(key, envelope.transient())
        }
    }

    /// The same with another time-out.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Why a message was not published. Only [`PublishError::Unconfirmed`] leaves open whether it was,
/// and [`PublishError::Refused`] where several queues are bound for one key: one that is full
/// refuses for all. So no queue beside a work queue may refuse; let a monitor's drop its oldest.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublishError {
    /// No queue is bound for the key.
    #[error("nobody consumes {key}")]
    Unroutable {
        /// Where the message was to go.
        key: RoutingKey,
    },
    /// A queue that the message belongs in is full, or the broker could not keep it.
    #[error("the queue behind {key} refused the message; it is full")]
    Refused {
        /// Where the message was to go.
        key: RoutingKey,
    },
    /// The message is larger than the bus carries.
    #[error("the message has {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// A part of the message does not fit the wire, so it did not go out and never will.
    #[error("the message can't be sent: {reason}")]
    Unsendable {
        /// Which part, and how large it is.
        reason: String,
    },
    /// There was no connection that takes messages, and the message did not go out.
    #[error("no connection to the broker: {reason}")]
    Disconnected {
        /// What the last attempt to connect said, or why the broker takes no messages.
        reason: String,
    },
    /// The message went out and no confirm came back: it may or may not have arrived.
    #[error("the broker did not confirm the message to {key}: {reason}")]
    Unconfirmed {
        /// Where the message was to go.
        key: RoutingKey,
        /// What happened instead.
        reason: String,
    },
    /// The bus was closed.
    #[error("the bus is closed")]
    Closed,
}

/// A queue to consume, and how many deliveries may be unsettled at once.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The queue.
    pub queue: QueueSpec,
    /// Most unsettled deliveries; at least 1.
    pub prefetch: u16,
    /// Who settles.
    pub settling: Settling,
}

/// When a delivery counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// When its holder settles it.
    ByHolder,
    /// As soon as it is handed out, for consumers that are done once they hold the message. The
    /// bus may tell the broker of several at once, which is far cheaper than one by one; those it
    /// has not told of come again after a lost connection.
    OnReceipt,
}

impl Subscription {
    /// Consumes `queue` with at most `prefetch` unsettled deliveries.
    #[must_use]
    pub fn new(queue: QueueSpec, prefetch: u16) -> Self {
        Self { queue, prefetch: prefetch.max(1), settling: Settling::ByHolder }
    }

    /// Consumes `queue`; a delivery is done when it is handed out.
    #[must_use]
    pub fn on_receipt(queue: QueueSpec, prefetch: u16) -> Self {
        Self { settling: Settling::OnReceipt, ..Self::new(queue, prefetch) }
    }
}

/// Why a queue can't be consumed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConsumeError {
    /// There is no connection to the broker.
    #[error("no connection to the broker: {reason}")]
    Disconnected {
        /// What the last attempt to connect said.
        reason: String,
    },
    /// The broker refused to declare or consume the queue.
    #[error("the broker refused queue {queue}: {reason}")]
    Refused {
        /// Bare name of the queue.
        queue: String,
        /// What the broker said, and what to do.
        reason: String,
    },
    /// The bus was closed.
    #[error("the bus is closed")]
    Closed,
}

/// Deliveries of one queue, in order.
pub struct Consumer(Box<dyn DeliverySource>);

/// What an adapter puts behind a [`Consumer`].
pub trait DeliverySource: Send {
    /// The next delivery; `None` when the consumer was cancelled or the bus closed and nothing is
    /// left. Must be safe to drop between polls.
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>>;

    /// Stops new deliveries; those already here are still handed out.
    fn cancel(&mut self) -> BoxFuture<'_, ()>;

    /// See [`Consumer::resumptions`].
    fn resumptions(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

impl Consumer {
    /// Wraps an adapter's source.
    #[must_use]
    pub fn new(source: impl DeliverySource + 'static) -> Self {
        Self(Box::new(source))
    }

    /// The next delivery; `None` when the consumer was cancelled or the bus closed and nothing is
    /// left.
    ///
    /// # Cancellation
    /// Safe: no delivery is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.0.next().await
    }

    /// Stops new deliveries. Those already here still come out of [`Consumer::next`], then `None`.
    pub async fn cancel(&mut self) {
        self.0.cancel().await;
    }

    /// How often it was interrupted, such as by a lost connection, and consumes again; `None` where
    /// that can't happen.
    #[must_use]
    pub fn resumptions(&self) -> Option<watch::Receiver<u64>> {
        self.0.resumptions()
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}
