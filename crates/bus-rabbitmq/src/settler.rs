//! Settling a delivery on the channel it came from.

use std::{borrow::Cow, sync::Arc};

use futures_util::future::BoxFuture;
use lapin::{
    Acker,
    options::{BasicAckOptions, BasicNackOptions},
    types::ShortString,
};
use rockbot_bus::{SettleError, Settler};
use rockbot_contracts::Envelope;

use crate::lane::Lane;

pub(crate) struct AmqpSettler {
    pub(crate) acker: Acker,
    /// Full name of the queue, and the lane to its dead letters; `None` where the queue has none.
    pub(crate) dead_letters: Option<(ShortString, Arc<Lane>)>,
}

const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };
const REJECT: BasicNackOptions = BasicNackOptions { multiple: false, requeue: false };

impl Settler for AmqpSettler {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move { settled(self.acker.ack(BasicAckOptions::default()).await) })
    }

    fn retry(self: Box<Self>, _: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move { settled(self.acker.nack(REQUEUE).await) })
    }

    fn dead_letter(
        self: Box<Self>,
        mut envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin(async move {
            let Some((queue, lane)) = self.dead_letters else {
                return settled(self.acker.nack(REJECT).await);
            };
            // The broker would keep only that it was rejected, so the letter is written here.
            envelope.dead_letter_reason = Some(reason.into());
            match lane.publish_raw(queue, &envelope).await {
                Ok(()) => settled(self.acker.ack(BasicAckOptions::default()).await),
                Err(error) => {
                    tracing::warn!(%error, "dead-lettering without the reason");
                    settled(self.acker.nack(REJECT).await)
                }
            }
        })
    }

    fn abandon(self: Box<Self>, _: Envelope) {
        // Without a runtime the connection is going away, and the broker requeues by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { self.acker.nack(REQUEUE).await });
        }
    }
}

fn settled(result: lapin::Result<bool>) -> Result<(), SettleError> {
    match result {
        Ok(true) => Ok(()),
        Ok(false) => Err(SettleError { reason: "its channel is gone".to_owned() }),
        Err(error) => Err(SettleError { reason: error.to_string() }),
    }
}
