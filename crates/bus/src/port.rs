//! The bus port.

use std::{fmt, panic::AssertUnwindSafe, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use rockbot_contracts::{Envelope, QueueName, QueueSpec, RoutingKey};
use tokio::sync::watch;

use crate::{delivery::Delivery, report::BusReport, supervision};

/// Carries messages between processes, or between tasks of one.
///
/// Consumers survive a disconnect. A publish fails with an error that says whether the message may have
/// been sent.
pub trait Bus: Send + Sync + 'static {
    /// Publishes a message. With [`Assurance::Confirmed`], it returns once the bus has taken
    /// responsibility for the message.
    ///
    /// # Cancellation
    /// Dropping the future leaves the message either published or not.
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>>;

    /// Declares a queue with its bindings and starts to consume it. Messages that are published to the
    /// queue after this returns reach the consumer.
    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>>;

    /// Returns the status of the bus and the named queues.
    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>>;

    /// Returns whether the bus is connected and every consumer is consuming. False for good once a task
    /// that owned a consumer ended by a panic.
    fn is_ready(&self) -> bool;

    /// Ends all consumers and closes the bus, in order. Publishing afterwards fails with
    /// [`PublishError::Closed`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Guarantee for a message when `publish` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// The bus confirmed it: routed, and on disk where the queue is durable.
    Confirmed,
    /// It was sent. For progress and announcements, where waiting costs more than a lost message.
    Sent,
}

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Publication {
    /// Routing key.
    pub key: RoutingKey,
    /// The message.
    pub envelope: Envelope,
    /// Fails the publish when no queue is bound for the key.
    pub mandatory: bool,
    /// Guarantee to wait for.
    pub assurance: Assurance,
    /// Maximum wait for a connection and a confirm. Default 10 s.
    pub timeout: Duration,
}

impl Publication {
    /// Default timeout of a publish.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates a confirmed publication that fails when no queue is bound for its key; for requests and
    /// replies.
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

    /// Creates an unconfirmed, transient publication for any number of consumers, including none.
    #[must_use]
    pub fn announcement(key: RoutingKey, envelope: Envelope) -> Self {
        Self {
            mandatory: false,
            assurance: Assurance::Sent,
            ..Self::mandatory(key, envelope.transient())
        }
    }

    /// Sets the timeout.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Errors of a publish. The message was not published, with two exceptions: after
/// [`PublishError::Unconfirmed`] it may have been, and after [`PublishError::Refused`] too if several
/// queues are bound for the key, since one full queue refuses for all. Other queues bound for the key of
/// a work queue must therefore not refuse; a monitor's queue drops its oldest message instead.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublishError {
    /// No queue is bound for the key.
    #[error("no queue is bound for {key}")]
    Unroutable {
        /// Routing key of the message.
        key: RoutingKey,
    },
    /// A queue for the message is full, or the broker could not store it.
    #[error("the queue for {key} refused the message: it is full")]
    Refused {
        /// Routing key of the message.
        key: RoutingKey,
    },
    /// The message is over the size limit of the bus.
    #[error("the message has {bytes} bytes, over the limit of {limit} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// A part of the message cannot be encoded; a retry does not help.
    #[error("the message can't be sent: {reason}")]
    Unsendable {
        /// The part and its size.
        reason: String,
    },
    /// No connection accepts messages; the message was not sent.
    #[error("no connection to the broker: {reason}")]
    Disconnected {
        /// Error of the last connection attempt, or the reason why the broker blocks publishers.
        reason: String,
    },
    /// The message was sent but not confirmed: it may have arrived.
    #[error("the broker did not confirm the message to {key}: {reason}")]
    Unconfirmed {
        /// Routing key of the message.
        key: RoutingKey,
        /// Cause.
        reason: String,
    },
    /// The bus was closed.
    #[error("the bus is closed")]
    Closed,
}

/// A queue to consume, with a limit on unsettled deliveries.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The queue.
    pub queue: QueueSpec,
    /// Maximum number of unsettled deliveries; at least 1.
    pub prefetch: u16,
    /// Time of settlement.
    pub settling: Settling,
    /// Time within which the consumer settles a delivery; a broker that enforces it redelivers the
    /// message. Default [`Subscription::SETTLE_TIMEOUT`].
    pub settle_timeout: Duration,
}

/// Time of the settlement of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// When the consumer settles it.
    Explicit,
    /// On receipt, for consumers that need no redelivery. The bus may acknowledge several deliveries at
    /// the broker together, which is far cheaper than one by one; those not acknowledged are redelivered
    /// after a disconnect.
    OnReceipt,
}

impl Subscription {
    /// Default time to settle a delivery: longer than any tool call.
    pub const SETTLE_TIMEOUT: Duration = Duration::from_secs(25 * 3600);

    /// Creates a subscription to `queue` with at most `prefetch` unsettled deliveries.
    #[must_use]
    pub fn new(queue: QueueSpec, prefetch: u16) -> Self {
        Self {
            queue,
            prefetch: prefetch.max(1),
            settling: Settling::Explicit,
            settle_timeout: Self::SETTLE_TIMEOUT,
        }
    }

    /// Creates a subscription to `queue` whose deliveries are settled on receipt.
    #[must_use]
    pub fn on_receipt(queue: QueueSpec, prefetch: u16) -> Self {
        Self { settling: Settling::OnReceipt, ..Self::new(queue, prefetch) }
    }

    /// Sets the time to settle a delivery.
    #[must_use]
    pub fn with_settle_timeout(mut self, timeout: Duration) -> Self {
        self.settle_timeout = timeout;
        self
    }
}

/// Errors of consuming a queue.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConsumeError {
    /// There is no connection to the broker.
    #[error("no connection to the broker: {reason}")]
    Disconnected {
        /// Error of the last connection attempt.
        reason: String,
    },
    /// The broker refused to declare or consume the queue.
    #[error("the broker refused queue {queue}: {reason}")]
    Refused {
        /// Bare name of the queue.
        queue: String,
        /// Error of the broker, and the remedy.
        reason: String,
    },
    /// Another connection uses the exclusive queue: that of a process with the same name, or a lost one of
    /// this process that the broker has not noticed yet.
    #[error(
        "queue {queue} is in exclusive use by another connection; stop the other process with this \
         service.instance"
    )]
    InUse {
        /// Bare name of the queue.
        queue: String,
    },
    /// The bus was closed.
    #[error("the bus is closed")]
    Closed,
}

/// Deliveries of one queue, in order.
pub struct Consumer(Box<dyn DeliverySource>);

/// Source of the deliveries of a [`Consumer`]; implemented by adapters.
pub trait DeliverySource: Send {
    /// Returns the next delivery; `None` after the last one once the consumer is cancelled or the bus
    /// closed. Must be safe to drop between polls.
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>>;

    /// Stops new deliveries; those already received are still returned.
    fn cancel(&mut self) -> BoxFuture<'_, ()>;

    /// See [`Consumer::reconnects`].
    fn reconnects(&self) -> Option<watch::Receiver<Reconnects>> {
        None
    }

    /// Gives up the current subscription after a panic in [`DeliverySource::next`], which then
    /// subscribes again. The bus redelivers unsettled messages.
    fn interrupt(&mut self) {}
}

/// Interruptions of a consumer since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reconnects {
    /// Number of new subscriptions.
    pub count: u64,
    /// Number of times that the queue was found deleted, with the messages that were in it.
    pub queue_losses: u64,
}

impl Consumer {
    /// Wraps the source of an adapter.
    #[must_use]
    pub fn new(source: impl DeliverySource + 'static) -> Self {
        Self(Box::new(source))
    }

    /// Returns the next delivery; `None` after the last one once the consumer is cancelled or the bus
    /// closed. A panic of the adapter interrupts the subscription and does not end the consumer.
    ///
    /// # Cancellation
    /// Safe: no delivery is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Delivery> {
        loop {
            // The call itself may panic, before it returns a future.
            let next = AssertUnwindSafe(async { self.0.next().await }).catch_unwind();
            if let Ok(next) = next.await {
                return next;
            }
            supervision::report_panic("consumer");
            self.0.interrupt();
            tokio::time::sleep(supervision::RESTART_PAUSE).await;
        }
    }

    /// Stops new deliveries. [`Consumer::next`] still returns those already received, then `None`.
    pub async fn cancel(&mut self) {
        self.0.cancel().await;
    }

    /// Returns the interruptions; `None` for a bus without connections.
    #[must_use]
    pub fn reconnects(&self) -> Option<watch::Receiver<Reconnects>> {
        self.0.reconnects()
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}
