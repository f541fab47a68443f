//! Announces an agent, and receives the announcements of others.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use metrics::{counter, gauge};
use rockbot_bus::{
    Bus, ConsumeError, Consumer, Publication, SUBSCRIBE_TIMEOUT, Subscription, subscribe,
};
use rockbot_contracts::{
    AgentCard, AgentName, ContentTrust, DiscoveryRefresh, Envelope, InstanceId, QueueSpec,
    RoutingKey,
    identity::may_reply_as,
    json::Limits,
    topology::{discovery_announce, discovery_refresh},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::directory::AgentDirectory;

/// Time between two announcements.
const INTERVAL: Duration = Duration::from_secs(120);
/// Longest wait before the announcement that a refresh asks for.
const REFRESH_WAIT: Duration = Duration::from_secs(1);
/// Time limit for the announcement of the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Announcements that wait in the process.
const PREFETCH: u16 = 64;

/// Keeps an [`AgentDirectory`] current, and announces the own agent if it has a card. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct Discovery {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Starts to listen, announces the agent, and asks all others to announce themselves.
    ///
    /// # Errors
    /// When a queue cannot be consumed.
    pub(crate) async fn start(
        bus: Arc<dyn Bus>,
        directory: Arc<AgentDirectory>,
        own: AgentName,
        card: Option<AgentCard>,
        instance: &InstanceId,
    ) -> Result<Self, ConsumeError> {
        let consume = async |key| {
            let subscription =
                Subscription::on_receipt(QueueSpec::exclusive(&key, instance), PREFETCH);
            subscribe(&*bus, subscription, SUBSCRIBE_TIMEOUT).await
        };
        let announcements = consume(discovery_announce()).await?;
        let refreshes = consume(discovery_refresh()).await?;
        let stop = CancellationToken::new();
        let announcer = Announcer { bus, directory, own, card };
        let task = tokio::spawn(announcer.run(announcements, refreshes, stop.clone()));
        Ok(Self { stop, task })
    }

    /// Announces that the agent stopped. Waits at most 1 s, since there may be no broker.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let _ = timeout(STOP_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Announcer {
    bus: Arc<dyn Bus>,
    directory: Arc<AgentDirectory>,
    own: AgentName,
    card: Option<AgentCard>,
}

impl Announcer {
    async fn run(
        self,
        mut announcements: Consumer,
        mut refreshes: Consumer,
        stop: CancellationToken,
    ) {
        self.publish(discovery_refresh(), Envelope::from_payload(&DiscoveryRefresh {})).await;
        let mut due = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(due) => {
                    self.announce(false).await;
                    self.reload().await;
                    due = Instant::now() + INTERVAL.mul_f64(0.9 + random() / 5.0);
                }
                Some(delivery) = announcements.next() => {
                    // Another process of the agent stopped, and this one still runs.
                    if self.receive(&delivery.into_envelope()) {
                        due = due.min(Instant::now() + REFRESH_WAIT.mul_f64(random()));
                    }
                }
                Some(delivery) = refreshes.next() => {
                    drop(delivery.into_envelope());
                    due = due.min(Instant::now() + REFRESH_WAIT.mul_f64(random()));
                }
            }
        }
        self.announce(true).await;
    }

    /// Adds an announcement to the directory. Returns `true` for the stop of the own agent.
    fn receive(&self, envelope: &Envelope) -> bool {
        let card = match envelope.decode::<AgentCard>(Limits::default()) {
            Ok(card) => card,
            Err(error) => {
                counter!("rockbot_agent_cards_dropped_total", "reason" => "invalid").increment(1);
                debug!(%error, "announcement of an agent not read");
                return false;
            }
        };
        if !may_reply_as(envelope.user_id.as_deref(), &card.agent_name) {
            counter!("rockbot_agent_cards_dropped_total", "reason" => "foreign").increment(1);
            debug!(agent = %card.agent_name, "announcement of another user's agent dropped");
            return false;
        }
        let is_own_stop = card.is_deregistering && card.agent_name == self.own;
        self.directory.add(card);
        gauge!("rockbot_agent_known_agents").set(self.directory.all().len() as f64);
        is_own_stop
    }

    async fn announce(&self, is_deregistering: bool) {
        if let Some(card) = &self.card {
            let card = AgentCard { is_deregistering, ..card.clone() };
            self.publish(discovery_announce(), Envelope::from_payload(&card)).await;
        }
    }

    async fn reload(&self) {
        let directory = self.directory.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || directory.reload()).await {
            debug!(%error, "well-known agents not reloaded");
        }
    }

    async fn publish(&self, key: RoutingKey, envelope: Envelope) {
        let envelope =
            envelope.with_source(self.own.as_str()).with_trust(ContentTrust::AgentMessage);
        if let Err(error) = self.bus.publish(Publication::announcement(key, envelope)).await {
            debug!(%error, "announcement not published; repeated later");
        }
    }
}

/// Returns a number from 0 to 1 that differs between processes.
fn random() -> f64 {
    let nanos =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    f64::from(nanos % 1_000_000) / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use rockbot_bus::MemoryBus;

    use super::*;
    use crate::discovery::A2aRules;

    #[test]
    fn card_of_another_users_agent_is_ignored() {
        let name = |name| AgentName::new(name).unwrap();
        let directory = Arc::new(AgentDirectory::new(name("caller"), None));
        let announcer = Announcer {
            bus: Arc::new(MemoryBus::new()),
            directory: directory.clone(),
            own: name("caller"),
            card: None,
        };
        let card = A2aRules::default().card(&name("worker"), "Finds things.");
        let publish = |user: &str, is_deregistering| {
            let mut envelope =
                Envelope::from_payload(&AgentCard { is_deregistering, ..card.clone() });
            envelope.user_id = Some(user.into());
            announcer.receive(&envelope);
            directory.get(&name("worker")).is_some()
        };
        assert!(!publish("rockbot.agent.third", false));
        assert!(publish("rockbot.agent.worker", false));
        assert!(publish("rockbot.agent.third", true), "another agent cannot remove it");
        assert!(!publish("rockbot.agent.worker", true));
    }
}
