//! Settling a delivery on the channel it came from.

use std::{borrow::Cow, pin::pin, sync::Arc};

use futures_util::future::BoxFuture;
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicRejectOptions},
    types::{DeliveryTag, ShortString},
};
use rockbot_bus::{SettleError, Settler};
use rockbot_contracts::Envelope;
use tokio::time::Instant;

use crate::{
    channel_wait::wait_on_channel, publish_channel::PublishChannel, supervisor::OPERATION_TIMEOUT,
};

pub(crate) struct AmqpSettler {
    /// Of this delivery only on this channel, which is never reopened.
    pub(crate) tag: DeliveryTag,
    /// Where the delivery came from; kept open for as long as it can be settled.
    pub(crate) channel: Arc<Channel>,
    /// Where its dead letters are kept; `None` where the queue has none.
    pub(crate) dead_letters: Option<Arc<DeadLetters>>,
}

/// Where the dead letters of a queue are kept.
pub(crate) struct DeadLetters {
    /// The full name of the queue that they are of.
    pub(crate) queue: ShortString,
    pub(crate) channel: Arc<PublishChannel>,
}

/// The longest reason that is kept with a dead letter.
const MAX_REASON_BYTES: usize = 1024;

/// With `reject`: from RabbitMQ 4.3 on a message that comes back with `nack` is not counted, and one
/// that nobody can handle would come back for ever.
const REQUEUE: BasicRejectOptions = BasicRejectOptions { requeue: true };
const GIVE_UP: BasicRejectOptions = BasicRejectOptions { requeue: false };

impl Settler for AmqpSettler {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move { self.acked().await })
    }

    fn retry(self: Box<Self>, _: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move { self.rejected(REQUEUE).await })
    }

    fn dead_letter(
        self: Box<Self>,
        mut envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move {
            let Some(dead_letters) = &self.dead_letters else {
                return self.rejected(GIVE_UP).await;
            };
            // The broker would keep only that it was rejected, so the letter is written here.
            let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
            envelope.dead_letter_reason = Some(reason.into());
            let DeadLetters { queue, channel } = &**dead_letters;
            match channel.publish_raw(queue.clone(), &envelope).await {
                Ok(()) => self.acked().await,
                Err(error) => {
                    tracing::warn!(%error, "dead-lettering without the reason");
                    self.rejected(GIVE_UP).await
                }
            }
        })
    }

    fn abandon(self: Box<Self>, _: Envelope) {
        // Without a runtime the connection is going away, and the broker requeues by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = self.rejected(REQUEUE).await;
            });
        }
    }
}

// On the channel itself: with what comes with a delivery to ack it, the client library would send a
// message to a task of its own, which starts another one.
impl AmqpSettler {
    async fn acked(&self) -> Result<(), SettleError> {
        let acked = pin!(self.channel.basic_ack(self.tag, BasicAckOptions::default()));
        settled(&self.channel, acked).await
    }

    async fn rejected(&self, how: BasicRejectOptions) -> Result<(), SettleError> {
        let rejected = pin!(self.channel.basic_reject(self.tag, how));
        settled(&self.channel, rejected).await
    }
}

/// Waits until the settlement is written to the socket. That takes long only while the broker reads
/// nothing from this connection; then it may still arrive later.
async fn settled(
    channel: &Channel,
    settlement: impl Future<Output = lapin::Result<()>> + Unpin,
) -> Result<(), SettleError> {
    let lost = |reason| Err(SettleError { reason });
    match wait_on_channel(channel, Instant::now() + OPERATION_TIMEOUT, settlement).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => lost(error.to_string()),
        Err(silence) => lost(silence.to_string()),
    }
}
