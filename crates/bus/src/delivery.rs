//! A message in the hands of a consumer.

use std::{borrow::Cow, fmt};

use futures_util::future::BoxFuture;
use rockbot_contracts::{Envelope, RoutingKey};

/// What becomes of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Done; the bus forgets it.
    Ack,
    /// Not now; the bus delivers it again, and dead-letters it when that happens too often.
    Retry,
    /// Never; the bus moves it to the dead letters with this reason.
    DeadLetter {
        /// For the operator who reads it there.
        reason: Cow<'static, str>,
    },
}

impl Settlement {
    /// Moves the delivery to the dead letters.
    #[must_use]
    pub fn dead_letter(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::DeadLetter { reason: reason.into() }
    }
}

/// Why a settlement did not reach the bus. The message will be delivered again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the delivery could not be settled, so it will come again: {reason}")]
pub struct SettleError {
    /// What happened.
    pub reason: String,
}

/// What an adapter puts behind a [`Delivery`].
pub trait Settler: Send + Sync {
    /// Done. Must take effect even if the future is dropped after its first poll.
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>>;

    /// Deliver it again.
    fn retry(self: Box<Self>, envelope: Envelope) -> BoxFuture<'static, Result<(), SettleError>>;

    /// Give it up, keeping the reason with it.
    fn dead_letter(
        self: Box<Self>,
        envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>>;

    /// The delivery was dropped without a settlement: hands it back without waiting.
    fn abandon(self: Box<Self>, envelope: Envelope);
}

/// A message to be settled. Settling consumes it, so it can't be settled twice; dropping it hands
/// it back to the bus as [`Settlement::Retry`] would.
///
/// It goes from hand to hand by value, so what it holds is in a box.
pub struct Delivery(Box<Held>);

struct Held {
    envelope: Option<Envelope>,
    routing_key: RoutingKey,
    attempt: u32,
    settler: Option<Box<dyn Settler>>,
}

impl Delivery {
    /// Puts a delivery into a consumer's hands; for adapters.
    #[must_use]
    pub fn new(
        envelope: Envelope,
        routing_key: RoutingKey,
        attempt: u32,
        settler: impl Settler + 'static,
    ) -> Self {
        let settler: Option<Box<dyn Settler>> = Some(Box::new(settler));
        Self(Box::new(Held { envelope: Some(envelope), routing_key, attempt, settler }))
    }

    /// A delivery that is done already; settling it changes nothing. For adapters.
    #[must_use]
    pub fn received(envelope: Envelope, routing_key: RoutingKey, attempt: u32) -> Self {
        let envelope = Some(envelope);
        Self(Box::new(Held { envelope, routing_key, attempt, settler: None }))
    }

    /// The message.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the envelope leaves only with `self`")]
    pub fn envelope(&self) -> &Envelope {
        self.0.envelope.as_ref().expect("an unsettled delivery has its envelope")
    }

    /// The key it was published with.
    #[must_use]
    pub fn routing_key(&self) -> &RoutingKey {
        &self.0.routing_key
    }

    /// Which delivery of this message this is, from 1. Above 1 somebody may have worked on it
    /// before.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Whether it was delivered before.
    #[must_use]
    pub fn is_redelivered(&self) -> bool {
        self.attempt() > 1
    }

    /// Settles the delivery.
    ///
    /// # Errors
    /// When the settlement did not reach the bus; the message will come again.
    pub async fn settle(self, settlement: Settlement) -> Result<(), SettleError> {
        match self.settling(settlement) {
            Some(settled) => settled.await,
            None => Ok(()),
        }
    }

    fn settling(
        mut self,
        settlement: Settlement,
    ) -> Option<BoxFuture<'static, Result<(), SettleError>>> {
        let settler = self.0.settler.take()?;
        let mut envelope = || self.0.envelope.take();
        Some(match settlement {
            Settlement::Ack => settler.ack(),
            Settlement::Retry => settler.retry(envelope()?),
            Settlement::DeadLetter { reason } => settler.dead_letter(envelope()?, reason),
        })
    }

    /// Keeps the message of a delivery that is done, or hands back one that is not.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the envelope leaves only with `self`")]
    pub fn into_envelope(mut self) -> Envelope {
        let envelope = self.0.envelope.take().expect("an unsettled delivery has its envelope");
        if let Some(settler) = self.0.settler.take() {
            settler.abandon(envelope.clone());
        }
        envelope
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let (Some(settler), Some(envelope)) = (self.0.settler.take(), self.0.envelope.take()) {
            settler.abandon(envelope);
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("routing_key", &self.0.routing_key)
            .field("attempt", &self.0.attempt)
            .field("envelope", &self.0.envelope)
            .finish_non_exhaustive()
    }
}
