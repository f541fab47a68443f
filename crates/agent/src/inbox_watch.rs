//! Detection of several processes that serve one agent.
//!
//! Each process keeps the conversations that it started, and the broker delivers a message to any of them.
//! A conversation that is spread over processes loses its context.

use std::{sync::Arc, time::Duration};

use metrics::gauge;
use rockbot_bus::{Bus, QueueState};
use rockbot_contracts::{AgentName, QueueName};
use tokio::{task::JoinHandle, time::sleep};
use tracing::{debug, info, warn};

/// Poll interval.
const INTERVAL: Duration = Duration::from_secs(10);
/// Poll interval after the broker refused an inspection, which it logs as an error.
const REFUSED_INTERVAL: Duration = Duration::from_secs(600);

/// Counts the consumers of an agent's inbox until it is dropped, reports more than one in the log, and
/// updates `rockbot_agent_inbox_consumers`. Every process of the agent reports it.
#[derive(Debug)]
pub(crate) struct InboxWatch(JoinHandle<()>);

impl InboxWatch {
    pub(crate) fn start(bus: Arc<dyn Bus>, agent: AgentName, queue: QueueName) -> Self {
        Self(tokio::spawn(watch(bus, agent, queue)))
    }
}

impl Drop for InboxWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(bus: Arc<dyn Bus>, agent: AgentName, queue: QueueName) {
    let queue = [queue];
    let mut is_shared = false;
    loop {
        let inspected = bus.inspect(&queue).await;
        if let Err(error) = &inspected {
            debug!(%error, "inbox inspection failed");
        }
        let state = inspected.ok().and_then(|report| Some(report.queues.first()?.state));
        let consumers = state.and_then(QueueState::depth).map(|depth| depth.consumers);
        gauge!("rockbot_agent_inbox_consumers").set(consumers.map_or(f64::NAN, f64::from));
        if let Some(consumers) = consumers {
            let was_shared = std::mem::replace(&mut is_shared, consumers > 1);
            match (was_shared, is_shared) {
                (false, true) => warn!(
                    %agent,
                    consumers,
                    "agent inbox has several consumers; conversations lose their context: run one \
                     process per agent name"
                ),
                (true, false) => info!(%agent, "agent inbox has one consumer again"),
                _ => {}
            }
        }
        let refused = state == Some(QueueState::Refused);
        sleep(if refused { REFUSED_INTERVAL } else { INTERVAL }).await;
    }
}
