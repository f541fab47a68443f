//! Settling a delivery on the channel it came from.

use std::{borrow::Cow, sync::Arc};

use futures_util::future::BoxFuture;
use lapin::{
    Acker, Channel,
    options::{BasicAckOptions, BasicRejectOptions},
    types::ShortString,
};
use rockbot_bus::{SettleError, Settler};
use rockbot_contracts::Envelope;
use tokio::time::Instant;

use crate::{lane::Lane, supervisor::OPERATION_TIMEOUT, word::word};

pub(crate) struct AmqpSettler {
    pub(crate) acker: Acker,
    /// Kept open for as long as the delivery can be settled.
    pub(crate) channel: Arc<Channel>,
    /// Under which full name of a queue its dead letters are kept, and the lane to them; `None` where
    /// the queue has none.
    pub(crate) dead_letters: Option<(ShortString, Arc<Lane>)>,
}

/// The longest reason that is kept with a dead letter.
const MAX_REASON_BYTES: usize = 1024;

/// With `reject`: from RabbitMQ 4.3 on a message that comes back with `nack` is not counted, and one
/// that nobody can handle would come back for ever.
const REQUEUE: BasicRejectOptions = BasicRejectOptions { requeue: true };
const GIVE_UP: BasicRejectOptions = BasicRejectOptions { requeue: false };

impl Settler for AmqpSettler {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move {
            let settler = *self;
            settled(&settler.channel, settler.acker.ack(BasicAckOptions::default())).await
        })
    }

    fn retry(self: Box<Self>, _: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move {
            let settler = *self;
            settled(&settler.channel, settler.acker.reject(REQUEUE)).await
        })
    }

    fn dead_letter(
        self: Box<Self>,
        mut envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move {
            let Self { acker, channel, dead_letters } = *self;
            let Some((queue, lane)) = dead_letters else {
                return settled(&channel, acker.reject(GIVE_UP)).await;
            };
            // The broker would keep only that it was rejected, so the letter is written here.
            let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
            envelope.dead_letter_reason = Some(reason.into());
            match lane.publish_raw(queue, &envelope).await {
                Ok(()) => settled(&channel, acker.ack(BasicAckOptions::default())).await,
                Err(error) => {
                    tracing::warn!(%error, "dead-lettering without the reason");
                    settled(&channel, acker.reject(GIVE_UP)).await
                }
            }
        })
    }

    fn abandon(self: Box<Self>, _: Envelope) {
        // Without a runtime the connection is going away, and the broker requeues by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let settler = *self;
                let _ = settled(&settler.channel, settler.acker.reject(REQUEUE)).await;
            });
        }
    }
}

/// Waits until the settlement is written to the socket. That takes long only while the broker reads
/// nothing from this connection; then it may still arrive later.
async fn settled(
    channel: &Channel,
    settlement: impl Future<Output = lapin::Result<bool>>,
) -> Result<(), SettleError> {
    let lost = |reason| Err(SettleError { reason });
    match word(channel, Instant::now() + OPERATION_TIMEOUT, settlement).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => lost("its channel is gone".to_owned()),
        Ok(Err(error)) => lost(error.to_string()),
        Err(silence) => lost(silence.to_string()),
    }
}
