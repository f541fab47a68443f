//! Publishes of gateways that fail, or do not end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use parking_lot::Mutex;
use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_testkit::{InterceptedBus, fixture::wait_until};

use crate::fleet::Fleet;

/// The fate of a publish.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    Arrives,
    TooLarge,
    /// No process consumes it.
    Unroutable,
    /// It arrives, and is not confirmed.
    Unconfirmed,
    /// It neither arrives nor is confirmed.
    Lost,
    /// It does not end.
    Hangs,
}

/// The intercepted publishes of the gateways of a fleet.
pub(crate) struct Sends {
    /// Beginning of the routing keys of publishes that are intercepted.
    prefix: &'static str,
    fate: Mutex<Fate>,
    /// Number of publishes that did not end.
    hanging: AtomicUsize,
}

impl Sends {
    /// Intercepts the messages and requests to agents of the gateways that start later.
    pub(crate) fn to_agents(fleet: &mut Fleet) -> Arc<Self> {
        Self::intercept(fleet, "user.")
    }

    /// Intercepts all publishes of the gateways that start later.
    pub(crate) fn all(fleet: &mut Fleet) -> Arc<Self> {
        Self::intercept(fleet, "")
    }

    fn intercept(fleet: &mut Fleet, prefix: &'static str) -> Arc<Self> {
        let (fate, hanging) = (Mutex::new(Fate::Arrives), AtomicUsize::new(0));
        let sends = Arc::new(Self { prefix, fate, hanging });
        let intercepted = sends.clone();
        let publish = move |bus: Arc<dyn Bus>, publication: Publication| {
            let sends = intercepted.clone();
            async move { sends.publish(bus, publication).await }
        };
        fleet.bus = InterceptedBus::wrap(fleet.bus.clone(), publish);
        sends
    }

    /// Sets the fate of later ones.
    pub(crate) fn set(&self, fate: Fate) {
        *self.fate.lock() = fate;
    }

    async fn publish(
        &self,
        bus: Arc<dyn Bus>,
        publication: Publication,
    ) -> Result<(), PublishError> {
        let key = publication.key.clone();
        let current = *self.fate.lock();
        let fate = if key.as_str().starts_with(self.prefix) { current } else { Fate::Arrives };
        let reason = "connection lost".to_owned();
        match fate {
            Fate::Arrives => bus.publish(publication).await,
            Fate::TooLarge => Err(PublishError::TooLarge { bytes: 2, limit: 1 }),
            Fate::Unroutable => Err(PublishError::Unroutable { key }),
            Fate::Unconfirmed => {
                bus.publish(publication).await?;
                Err(PublishError::Unconfirmed { key, reason })
            }
            Fate::Lost => Err(PublishError::Unconfirmed { key, reason }),
            Fate::Hangs => {
                self.hanging.fetch_add(1, SeqCst);
                std::future::pending().await
            }
        }
    }

    pub(crate) async fn until_hanging(&self, number: usize) {
        wait_until("the messages are being sent", || self.hanging.load(SeqCst) == number).await;
    }
}
