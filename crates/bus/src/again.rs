//! Asking again what is still open after a lost connection.
//!
//! A question that the bus confirmed can still be lost: those who had it in hand may have lost their
//! connections too, and a bus gives up what it delivered too often. Nobody tells the asker.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use rockbot_contracts::{Envelope, RoutingKey};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tracing::{Instrument, Span, debug, info};

use crate::{
    port::{Bus, Publication},
    request::{MOST_ASKED, Pending},
};

/// How long after the last loss an open question may count as lost. Those who work on questions have
/// their connections back by then, and what they had in hand is answered, or under way.
const QUIET: Duration = Duration::from_secs(5);

/// How many losses a question was open through that counts as lost. A bus gives up after five
/// deliveries; not all of those losses are seen here.
const LOSSES: u64 = 2;

/// Questions that are asked again at once.
const AT_ONCE: usize = 32;

/// A question that is open, and what it takes to ask it once more.
#[derive(Clone)]
pub(crate) struct Again {
    key: RoutingKey,
    envelope: Envelope,
    deadline: Instant,
    /// How many losses there had been when it was sent.
    losses: u64,
    asker: Span,
}

impl Again {
    /// The question `envelope`, which is with the bus now, after so many losses.
    pub(crate) fn new(key: RoutingKey, envelope: Envelope, deadline: Instant, losses: u64) -> Self {
        Self { key, envelope, deadline, losses, asker: Span::current() }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.envelope.correlation_id.as_deref()
    }

    /// The question to be sent once more, which is then counted; nothing when it can't be lost after
    /// so many losses, or has been asked often enough, or has no time left.
    pub(crate) fn once_more(&mut self, losses: u64) -> Option<Self> {
        let enough = self.envelope.asked >= MOST_ASKED || self.deadline <= Instant::now();
        if enough || losses.saturating_sub(self.losses) < LOSSES {
            return None;
        }
        self.losses = losses;
        self.envelope = self.envelope.clone().asked_again();
        Some(self.clone())
    }

    async fn send(self, bus: &dyn Bus) {
        let Self { key, envelope, deadline, asker, .. } = self;
        let (id, asked) = (envelope.correlation_id.clone(), envelope.asked);
        let asking = async {
            info!(
                correlation_id = id.as_deref(),
                asked, "no answer since the connection was lost; asking again under the same id"
            );
            let left = deadline.saturating_duration_since(Instant::now());
            let publication = Publication::mandatory(key, envelope.within(left));
            if let Err(error) = bus.publish(publication.within(left)).await {
                debug!(correlation_id = id.as_deref(), %error, "asking again failed");
            }
        };
        asking.instrument(asker).await;
    }
}

/// Asks again what is still open some time after a run of losses; until the bus is closed.
pub(crate) async fn after_losses(
    bus: Arc<dyn Bus>,
    pending: Arc<Pending>,
    mut resumptions: watch::Receiver<u64>,
) {
    while resumptions.changed().await.is_ok() {
        loop {
            pending.losses.store(*resumptions.borrow_and_update(), Ordering::Relaxed);
            match timeout(QUIET, resumptions.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => break,
            }
        }
        let send = |again: Again| {
            pending.stats.count_asked_again();
            again.send(bus.as_ref())
        };
        stream::iter(pending.lost()).for_each_concurrent(AT_ONCE, send).await;
    }
}
