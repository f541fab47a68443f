//! The queue of decisions that outlives the processes of the agent.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, ConsumeError, Delivery, Handler, Settlement, Subscription, Worker};
use rockbot_contracts::{
    ApprovalAnswer, Envelope, Message, QueueSpec, envelope::unix_ms, json::Limits,
    topology::user_approval,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    agent::Agent,
    approvals::{Approvals, RetainedDecisions},
};

/// Time for which a decision is tried to record. Then another process gets it.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts to record a decision.
const RECORD_RETRY: Duration = Duration::from_millis(500);
/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a process that starts waits for the decisions that were given before.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// Records the decisions of the queue until it is dropped.
#[derive(Debug)]
pub(super) struct RetainedQueue {
    _worker: Worker,
}

impl RetainedQueue {
    /// Consumes the decisions, which only one process of the agent receives: it records them for all of them.
    /// Waits up to 2 s for those that were given before, so that no request is shown again for them.
    pub(super) async fn start(
        agent: &Agent,
        approvals: &Arc<Approvals>,
        bus: &dyn Bus,
    ) -> Result<Self, ConsumeError> {
        let decisions = RetainedDecisions::new(agent.conversations().store().clone(), agent.name());
        approvals.set_retained(decisions.clone());
        let queue = QueueSpec::retained(&user_approval(agent.name()));
        let waiting = waiting(bus, &queue).await;
        let (processed, mut is_processed) = watch::channel(0);
        let handler = DecisionHandler { expiry: approvals.expiry(), decisions, processed };
        let subscription = Subscription::new(queue, 1);
        let worker = Worker::start(bus, subscription, Arc::new(handler)).await?;
        let caught_up = is_processed.wait_for(|number| *number >= waiting);
        if timeout(CATCH_UP_TIMEOUT, caught_up).await.is_err() {
            info!(waiting, "retained decisions not read in time");
        }
        Ok(Self { _worker: worker })
    }
}

/// Returns the number of decisions in the queue; 0 if it cannot be inspected.
async fn waiting(bus: &dyn Bus, queue: &QueueSpec) -> u32 {
    let report = bus.inspect(std::slice::from_ref(&queue.name)).await;
    let depth = report.ok().and_then(|report| report.queues.first()?.depth());
    depth.map_or(0, |depth| depth.ready)
}

struct DecisionHandler {
    /// Time for which a decision counts after it was given.
    expiry: Duration,
    decisions: RetainedDecisions,
    /// Number of decisions that were processed.
    processed: watch::Sender<u32>,
}

impl Handler for DecisionHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async {
            let settlement = self.record(delivery.envelope()).await;
            self.processed.send_modify(|number| *number = number.saturating_add(1));
            settlement
        })
    }
}

impl DecisionHandler {
    async fn record(&self, envelope: &Envelope) -> Settlement {
        // Clients of earlier builds send responses to requests for input here too.
        if envelope.message_type() != ApprovalAnswer::TYPE {
            return Settlement::Ack;
        }
        // The queues of the processes report invalid ones.
        let Ok(decision) = envelope.decode::<ApprovalAnswer>(Limits::default()) else {
            return Settlement::Ack;
        };
        let (now, given) = (unix_ms(SystemTime::now()) / 1000, envelope.timestamp);
        let Some(lifetime) = lifetime(self.expiry, now, given) else {
            // Also where the clock of the sender is behind.
            let age_s = now.saturating_sub(given);
            warn!(approval_id = %decision.approval_id, age_s, "expired decision dropped");
            return Settlement::Ack;
        };
        if !decision.has_valid_hash() {
            return Settlement::Ack;
        }
        let give_up = Instant::now() + RECORD_TIMEOUT;
        loop {
            let recorded = self.decisions.record(&decision, lifetime);
            match timeout(ATTEMPT_TIMEOUT, recorded).await {
                Ok(Ok(())) => return Settlement::Ack,
                Ok(Err(error)) => {
                    debug!(approval_id = %decision.approval_id, %error, "decision not recorded");
                }
                Err(_) => debug!(approval_id = %decision.approval_id, "decision not recorded"),
            }
            if Instant::now() >= give_up {
                return Settlement::Retry;
            }
            sleep(RECORD_RETRY).await;
        }
    }
}

/// Returns the time for which a decision counts that was given at `given` by the sender's clock, in Unix seconds;
/// `None` if its approval has expired. A timestamp in the future counts as `now`.
fn lifetime(expiry: Duration, now: u64, given: u64) -> Option<Duration> {
    let age = now - given.min(now);
    let left = expiry.checked_sub(Duration::from_secs(age))?;
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_counts_until_its_approval_expires() {
        let lifetime = |given| lifetime(Duration::from_secs(120), 1000, given);
        assert_eq!(lifetime(990), Some(Duration::from_secs(110)));
        assert_eq!(lifetime(881), Some(Duration::from_secs(1)));
        assert_eq!(lifetime(880), None);
        for ahead in [1001, u64::MAX] {
            assert_eq!(lifetime(ahead), Some(Duration::from_secs(120)));
        }
    }
}
