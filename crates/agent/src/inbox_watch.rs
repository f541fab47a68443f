//! Detection of processes that serve one agent with different conversations.
//!
//! The broker delivers a message to any process that consumes the agent's inbox. A conversation that is spread over
//! processes which do not share their conversations loses its context.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use metrics::gauge;
use rockbot_bus::{Bus, QueueState};
use rockbot_contracts::{AgentName, InstanceId, QueueName};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{agent::Agent, agent_processes::AgentProcesses};

/// Poll interval.
const INTERVAL: Duration = Duration::from_secs(10);
/// Poll interval after the broker refused an inspection, which it logs as an error.
const REFUSED_INTERVAL: Duration = Duration::from_secs(600);
/// Time limit of an operation on the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Consecutive polls with the same finding before it is reported: a process that starts or stops, or whose store was
/// unavailable, may have no registration for one poll.
const CONFIRMED_AFTER: u32 = 2;

/// The registration of a process in the store of conversations that it shares.
#[derive(Debug, Clone)]
pub(crate) struct Registration {
    pub(crate) processes: AgentProcesses,
    pub(crate) own: InstanceId,
}

impl Registration {
    /// Registers the process, or renews its registration. A failure is repeated at the next poll.
    pub(crate) async fn renew(&self) {
        let renewed = timeout(STORE_TIMEOUT, self.processes.register(&self.own)).await;
        if !matches!(renewed, Ok(Ok(()))) {
            debug!("process not registered in the store of conversations");
        }
    }

    /// Returns the number of processes that share the conversations; `None` if the store is unavailable.
    async fn count(&self) -> Option<u32> {
        timeout(STORE_TIMEOUT, self.processes.count()).await.ok()?.ok()
    }
}

/// Counts the consumers of an agent's inbox until it is dropped. Reports those that do not share the conversations of
/// this process: in the log, in `rockbot_agent_foreign_processes`, and in the overview of the agent. Without a
/// registration, these are all others. Every process of the agent reports them.
#[derive(Debug)]
pub(crate) struct InboxWatch {
    registration: Option<Registration>,
    task: JoinHandle<()>,
}

impl InboxWatch {
    pub(crate) fn start(
        bus: Arc<dyn Bus>,
        agent: &Agent,
        queue: QueueName,
        registration: Option<Registration>,
    ) -> Self {
        let inbox = Inbox { bus, queue: [queue], registration: registration.clone() };
        let reports = Reports::new(agent.name().clone(), agent.foreign_processes().clone());
        Self { registration, task: tokio::spawn(watch(inbox, reports)) }
    }

    /// Ends the watch, and withdraws the registration within 2 s.
    pub(crate) async fn stop(self) {
        self.task.abort();
        if let Some(Registration { processes, own }) = &self.registration {
            let _ = timeout(STORE_TIMEOUT, processes.withdraw(own)).await;
        }
    }
}

impl Drop for InboxWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The inbox of an agent, and the registration of the process that watches it.
struct Inbox {
    bus: Arc<dyn Bus>,
    queue: [QueueName; 1],
    registration: Option<Registration>,
}

impl Inbox {
    /// Returns the state of the queue; `None` if the inspection failed.
    async fn state(&self) -> Option<QueueState> {
        match self.bus.inspect(&self.queue).await {
            Ok(report) => Some(report.queues.first()?.state),
            Err(error) => {
                debug!(%error, "inbox inspection failed");
                None
            }
        }
    }

    /// Returns the number of processes that share the conversations of this one, with itself; `None` if the store is
    /// unavailable.
    async fn sharing(&self) -> Option<u32> {
        match &self.registration {
            Some(registration) => registration.count().await,
            None => Some(1),
        }
    }
}

async fn watch(inbox: Inbox, mut reports: Reports) {
    let mut inspect_at = Instant::now();
    loop {
        if let Some(registration) = &inbox.registration {
            registration.renew().await;
        }
        if Instant::now() >= inspect_at {
            let state = inbox.state().await;
            if state == Some(QueueState::Refused) {
                inspect_at = Instant::now() + REFUSED_INTERVAL;
            }
            let consumers = state.and_then(QueueState::depth).map(|depth| depth.consumers);
            // Counted after the consumers, because a process registers before it consumes.
            let sharing = inbox.sharing().await;
            reports
                .observe(consumers.zip(sharing).map(|(all, sharing)| all.saturating_sub(sharing)));
        }
        sleep(INTERVAL).await;
    }
}

/// Reports about other processes of an agent.
struct Reports {
    agent: AgentName,
    /// Number of polls in a row that found processes with other conversations.
    polls: u32,
    reported: Arc<AtomicU32>,
}

impl Reports {
    const fn new(agent: AgentName, reported: Arc<AtomicU32>) -> Self {
        Self { agent, polls: 0, reported }
    }

    /// Records a poll that found this number of processes with other conversations, and reports a change. `None`, if
    /// the number is unknown, changes no report.
    fn observe(&mut self, foreign: Option<u32>) {
        let Some(foreign) = foreign else { return };
        self.polls = if foreign == 0 { 0 } else { self.polls.saturating_add(1) };
        let confirmed = if self.polls >= CONFIRMED_AFTER { foreign } else { 0 };
        gauge!("rockbot_agent_foreign_processes").set(f64::from(confirmed));
        let before = self.reported.swap(confirmed, Ordering::Relaxed);
        let agent = &self.agent;
        match (before, confirmed) {
            (0, 1..) => warn!(
                %agent,
                foreign,
                "agent inbox has consumers with other conversations; conversations lose their context: run \
                 rockbot-agent with the same agent.conversations.store in all of them, or give the others another \
                 agent.name"
            ),
            (1.., 0) => {
                info!(%agent, "all consumers of the agent inbox share its conversations again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_process_is_reported_after_two_polls() {
        let reported = Arc::new(AtomicU32::new(0));
        let mut reports = Reports::new(AgentName::new("writer").unwrap(), reported.clone());
        let polls = [
            (Some(1), 0),
            (Some(0), 0),
            (Some(1), 0),
            (None, 0),
            (Some(2), 2),
            (None, 2),
            (Some(1), 1),
            (Some(0), 0),
        ];
        for (poll, (foreign, expected)) in polls.into_iter().enumerate() {
            reports.observe(foreign);
            assert_eq!(reported.load(Ordering::Relaxed), expected, "poll {poll}");
        }
    }
}
