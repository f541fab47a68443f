//! Announced results of scheduled tasks.

use std::fmt;

use rockbot_bus::{Consumer, Subscription};
use rockbot_contracts::{
    AgentName, Envelope, InstanceId, QueueSpec, ScheduledEnded, identity::may_reply_as,
    json::Limits, topology::user_notice,
};
use tracing::warn;

/// Prefetch of announcements. They are settled on receipt.
const PREFETCH: u16 = 64;

/// The results of an agent's scheduled tasks, as they are announced. Those of times without a connection are
/// lost.
pub struct ScheduledResults {
    agent: AgentName,
    consumer: Consumer,
}

impl ScheduledResults {
    pub(super) fn subscription(agent: &AgentName, instance: &InstanceId) -> Subscription {
        Subscription::on_receipt(QueueSpec::exclusive(&user_notice(agent), instance), PREFETCH)
    }

    pub(super) fn new(agent: AgentName, consumer: Consumer) -> Self {
        Self { agent, consumer }
    }

    /// Returns the next result. `None` once the bus is closed.
    ///
    /// # Cancellation
    /// No result is lost.
    pub async fn next(&mut self) -> Option<ScheduledEnded> {
        loop {
            let envelope = self.consumer.next().await?.into_envelope();
            if let Some(ended) = read(&envelope, &self.agent) {
                return Some(ended);
            }
        }
    }
}

/// Reads an announcement, if it is from its agent.
fn read(envelope: &Envelope, agent: &AgentName) -> Option<ScheduledEnded> {
    match envelope.decode::<ScheduledEnded>(Limits::default()) {
        Ok(ended) if ended.agent == *agent && may_reply_as(envelope.user_id.as_deref(), agent) => {
            Some(ended)
        }
        Ok(_) => {
            let user = envelope.user_id.as_deref();
            warn!(%agent, user, "result of a scheduled task dropped: not of its agent's user");
            None
        }
        Err(error) => {
            warn!(%error, "invalid announcement");
            None
        }
    }
}

impl fmt::Debug for ScheduledResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledResults").field("agent", &self.agent).finish_non_exhaustive()
    }
}
