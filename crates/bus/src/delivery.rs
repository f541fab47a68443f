//! Deliveries and their settlement.

use std::{borrow::Cow, fmt};

use futures_util::future::BoxFuture;
use rockbot_contracts::{Envelope, RoutingKey};

/// Settlement of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Processed; the bus removes it.
    Ack,
    /// Not processed; the bus redelivers it, and dead-letters it after too many deliveries.
    Retry,
    /// Cannot be processed; the bus moves it to the dead letters with this reason.
    DeadLetter {
        /// Reason, for operators.
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

/// A settlement that did not reach the bus. The message will be redelivered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("settlement failed: {reason}; the message will be redelivered")]
pub struct SettleError {
    /// Cause.
    pub reason: String,
}

/// Settles a [`Delivery`]; implemented by adapters.
pub trait Settler: Send + Sync {
    /// Acknowledges it. Must take effect even if the future is dropped after its first poll.
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>>;

    /// Returns it to the bus for redelivery.
    fn retry(self: Box<Self>, envelope: Envelope) -> BoxFuture<'static, Result<(), SettleError>>;

    /// Moves it to the dead letters, with the reason.
    fn dead_letter(
        self: Box<Self>,
        envelope: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>>;

    /// Returns whether the bus still accepts a settlement. Once false, it stays false, and the bus
    /// redelivers the message.
    fn is_open(&self) -> bool {
        true
    }

    /// Returns a delivery that was dropped without a settlement; does not wait.
    fn abandon(self: Box<Self>, envelope: Envelope);
}

/// A received message. Settling consumes it, so it can't be settled twice. Dropping it returns it to the
/// bus like [`Settlement::Retry`].
///
/// The content is boxed because deliveries are moved often.
pub struct Delivery(Box<Inner>);

struct Inner {
    envelope: Option<Envelope>,
    routing_key: RoutingKey,
    attempt: u32,
    settler: Option<Box<dyn Settler>>,
}

impl Delivery {
    /// Creates a delivery; for adapters.
    #[must_use]
    pub fn new(
        envelope: Envelope,
        routing_key: RoutingKey,
        attempt: u32,
        settler: impl Settler + 'static,
    ) -> Self {
        let settler: Option<Box<dyn Settler>> = Some(Box::new(settler));
        Self(Box::new(Inner { envelope: Some(envelope), routing_key, attempt, settler }))
    }

    /// Creates a delivery that is already settled; settling it has no effect. For adapters.
    #[must_use]
    pub fn received(envelope: Envelope, routing_key: RoutingKey, attempt: u32) -> Self {
        let envelope = Some(envelope);
        Self(Box::new(Inner { envelope, routing_key, attempt, settler: None }))
    }

    /// Returns the message.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the envelope is moved out only with `self`")]
    pub fn envelope(&self) -> &Envelope {
        self.0.envelope.as_ref().expect("an unsettled delivery has its envelope")
    }

    /// Returns the routing key of the message.
    #[must_use]
    pub fn routing_key(&self) -> &RoutingKey {
        &self.0.routing_key
    }

    /// Returns the number of this delivery of the message, from 1. Above 1, a consumer may already have
    /// processed it.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Returns whether it was delivered before.
    #[must_use]
    pub fn is_redelivered(&self) -> bool {
        self.attempt() > 1
    }

    /// Returns whether the bus still waits for the settlement. If not, its channel was lost, and the bus
    /// redelivers the message, possibly to another consumer.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.settler.as_ref().is_none_or(|settler| settler.is_open())
    }

    /// Settles the delivery.
    ///
    /// # Errors
    /// When the settlement did not reach the bus; the message will be redelivered.
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

    /// Returns the message. An unsettled delivery is returned to the bus.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the envelope is moved out only with `self`")]
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
