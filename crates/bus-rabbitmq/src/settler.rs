//! Settlement of deliveries on their channels.

use std::{
    borrow::Cow,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::BoxFuture;
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicRejectOptions},
    types::{DeliveryTag, ShortString},
};
use metrics::counter;
use rockbot_bus::{SettleError, Settler};
use rockbot_contracts::{Envelope, json::Limits, topology::DELIVERED_TOO_OFTEN};
use tokio::time::Instant;

use crate::{
    channel_wait::wait_on_channel, dead_letter_budget::DeadLetterBudget,
    publish_channel::PublishChannel, supervisor::OPERATION_TIMEOUT,
};

pub(crate) struct AmqpSettler {
    /// Valid only on this channel, which is never reopened.
    pub(crate) tag: DeliveryTag,
    /// Channel of the delivery, kept open until it is settled.
    pub(crate) channel: Arc<Channel>,
    /// `None` for queues without dead letters.
    pub(crate) dead_letters: Option<Arc<DeadLetters>>,
    pub(crate) _unsettled: UnsettledGuard,
}

/// Number of unsettled deliveries of a session.
#[derive(Clone, Default)]
pub(crate) struct UnsettledCount(Arc<AtomicUsize>);

/// Counts a delivery until it is dropped.
pub(crate) struct UnsettledGuard(UnsettledCount);

impl UnsettledCount {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> UnsettledGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        UnsettledGuard(self.clone())
    }
}

impl Drop for UnsettledGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Destination of the dead letters of a queue.
pub(crate) struct DeadLetters {
    /// Name of the queue at the broker, which is the routing key of its dead letters.
    pub(crate) queue: ShortString,
    pub(crate) channel: Arc<PublishChannel>,
    pub(crate) budget: DeadLetterBudget,
}

/// Maximum length of the reason in a dead letter.
const MAX_REASON_BYTES: usize = 1024;

/// For `reject`: from RabbitMQ 4.3 on, a requeue by `nack` is not counted as a delivery, so a message
/// that can't be processed would be redelivered forever.
const REQUEUE: BasicRejectOptions = BasicRejectOptions { requeue: true };
const DEAD_LETTER: BasicRejectOptions = BasicRejectOptions { requeue: false };

impl Settler for AmqpSettler {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move { self.ack_delivery().await })
    }

    fn retry(self: Box<Self>, _: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move { self.reject_delivery(REQUEUE).await })
    }

    fn dead_letter(
        self: Box<Self>,
        mut envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move {
            let Some(dead_letters) = &self.dead_letters else {
                return self.reject_delivery(DEAD_LETTER).await;
            };
            let bytes = envelope.body.len();
            // The budget is for letters that senders cause at no cost. It protects these.
            let is_limited = reason != DELIVERED_TOO_OFTEN;
            if is_limited && !dead_letters.budget.take(bytes) {
                counter!("rockbot_bus_dead_letters_dropped_total").increment(1);
                return self.ack_delivery().await;
            }
            if bytes > Limits::default().bytes {
                // The broker moves it without a copy, and would refuse one.
                return self.reject_delivery(DEAD_LETTER).await;
            }
            // A rejection has no reason, so the dead letter is published by this process.
            let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
            envelope.dead_letter_reason = Some(reason.into());
            let DeadLetters { queue, channel, .. } = &**dead_letters;
            match channel.publish_raw(queue.clone(), &envelope).await {
                Ok(()) => self.ack_delivery().await,
                Err(error) => {
                    tracing::warn!(%error, "dead letter publish failed; rejecting without the reason");
                    self.reject_delivery(DEAD_LETTER).await
                }
            }
        })
    }

    fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    fn abandon(self: Box<Self>, _: Envelope) {
        // Without a runtime the connection closes, and the broker requeues the message.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = self.reject_delivery(REQUEUE).await;
            });
        }
    }
}

// Settles on the channel directly: with a delivery's own acker, the client library would involve two more
// tasks.
impl AmqpSettler {
    async fn ack_delivery(&self) -> Result<(), SettleError> {
        let acked = pin!(self.channel.basic_ack(self.tag, BasicAckOptions::default()));
        await_write(&self.channel, acked).await
    }

    async fn reject_delivery(&self, options: BasicRejectOptions) -> Result<(), SettleError> {
        let rejected = pin!(self.channel.basic_reject(self.tag, options));
        await_write(&self.channel, rejected).await
    }
}

/// Waits until a settlement is written to the socket. This takes long only while the broker does not read
/// from the connection; after a timeout, the settlement may still arrive.
async fn await_write(
    channel: &Channel,
    settlement: impl Future<Output = lapin::Result<()>> + Unpin,
) -> Result<(), SettleError> {
    let failed = |reason| Err(SettleError { reason });
    match wait_on_channel(channel, Instant::now() + OPERATION_TIMEOUT, settlement).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}
