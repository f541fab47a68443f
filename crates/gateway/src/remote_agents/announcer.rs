//! Announces a remote agent to the agents of the bus.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{
    Bus, ConsumeError, Consumer, Publication, SUBSCRIBE_TIMEOUT, Subscription, subscribe,
};
use rockbot_contracts::{
    AgentCard, ContentTrust, Envelope, InstanceId, QueueSpec,
    topology::{discovery_announce, discovery_refresh},
};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

/// Time between two announcements.
const INTERVAL: Duration = Duration::from_secs(120);
/// Shortest time between two announcements.
const PAUSE: Duration = Duration::from_millis(500);
/// Refreshes that wait in the process.
const PREFETCH: u16 = 16;

/// Announces one agent at intervals, and when an agent asks for it.
pub(super) struct Announcer {
    bus: Arc<dyn Bus>,
    refreshes: Consumer,
    due: Instant,
}

impl Announcer {
    /// Starts to listen for requests for announcements.
    ///
    /// # Errors
    /// When the queue cannot be consumed.
    pub(super) async fn start(bus: Arc<dyn Bus>) -> Result<Self, ConsumeError> {
        // The process has a queue of its own for each agent.
        let queue = QueueSpec::exclusive(&discovery_refresh(), &InstanceId::generate());
        let subscription = Subscription::on_receipt(queue, PREFETCH);
        let refreshes = subscribe(&*bus, subscription, SUBSCRIBE_TIMEOUT).await?;
        Ok(Self { bus, refreshes, due: Instant::now() })
    }

    /// Waits until the agent must be announced. Returns `false` if the queue is gone.
    ///
    /// # Cancellation
    /// No announcement is lost.
    pub(super) async fn due(&mut self) -> bool {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(self.due) => {
                    self.due = Instant::now() + INTERVAL;
                    return true;
                }
                refresh = self.refreshes.next() => {
                    let Some(refresh) = refresh else { return false };
                    drop(refresh.into_envelope());
                    self.due = self.due.min(Instant::now() + PAUSE);
                }
            }
        }
    }

    /// Announces the agent, or its stop.
    pub(super) async fn announce(&mut self, card: &AgentCard, is_deregistering: bool) {
        let card = AgentCard { is_deregistering, ..card.clone() };
        let envelope = Envelope::from_payload(&card)
            .with_source(card.agent_name.as_str())
            .with_trust(ContentTrust::AgentMessage);
        let announcement = Publication::announcement(discovery_announce(), envelope);
        if let Err(error) = self.bus.publish(announcement).await {
            debug!(agent = %card.agent_name, %error, "announcement not published; repeated later");
        }
    }
}
