//! The exchange of tasks with other agents over the bus.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Subscription, Worker};
use rockbot_contracts::{
    InstanceId, QueueSpec,
    topology::{agent_response, agent_task_queue},
};

use crate::{
    agent::Agent,
    delegation::{Peers, ResponseHandler, TaskIntake},
    discovery::{AgentDirectory, Discovery},
};

/// Maximum number of tasks and of responses that are recorded at a time.
const CONCURRENCY: u16 = 16;

/// Announces an agent to others, accepts their tasks as far as its definition permits, and receives the responses
/// to its own requests. Dropping it ends all of that; what was recorded continues with the agent.
pub struct PeerService {
    discovery: Discovery,
    responses: Worker,
    /// `None` if the agent accepts no tasks.
    tasks: Option<Worker>,
}

impl PeerService {
    /// Starts the exchange. `directory` is that of the tools of the agent. Call it after the inbox is served, so that
    /// work is shared with other processes of the agent.
    ///
    /// # Errors
    /// When a queue cannot be consumed.
    pub async fn start(
        agent: &Agent,
        bus: Arc<dyn Bus>,
        directory: Arc<AgentDirectory>,
        instance: &InstanceId,
    ) -> Result<Option<Self>, ConsumeError> {
        let Some(delegation) = agent.delegation() else { return Ok(None) };
        let definition = agent.definition();
        let (name, rules) = (agent.name().clone(), definition.a2a.clone());
        let card = rules.card(&name, &definition.description);
        let announced = rules.expose.then(|| card.clone());
        delegation.set_peers(Arc::new(Peers {
            bus: bus.clone(),
            directory: directory.clone(),
            rules,
            card,
            limits: agent.budget_limits(),
        }));
        let responses = QueueSpec::work(&agent_response(&name));
        let handler = Arc::new(ResponseHandler { delegation: delegation.clone() });
        let subscription = Subscription::new(responses, CONCURRENCY);
        let responses = Worker::start(bus.as_ref(), subscription, handler).await?;
        let tasks = if announced.is_some() {
            let subscription = Subscription::new(agent_task_queue(&name), CONCURRENCY);
            let handler = Arc::new(TaskIntake::new(delegation.clone()));
            Some(Worker::start(bus.as_ref(), subscription, handler).await?)
        } else {
            None
        };
        // After the queue of tasks exists: who reads the announcement may send one.
        let discovery = Discovery::start(bus, directory, name, announced, instance).await?;
        Ok(Some(Self { discovery, responses, tasks }))
    }

    /// Waits until a queue is no longer consumed although nothing stopped its worker.
    pub async fn ended(&self) {
        match &self.tasks {
            Some(tasks) => tokio::select! {
                () = self.responses.ended() => {}
                () = tasks.ended() => {}
            },
            None => self.responses.ended().await,
        }
    }

    /// Announces the stop, and records what was received, at most for `grace`. Returns `true` if all was recorded.
    pub async fn drain(self, grace: Duration) -> bool {
        let Self { discovery, responses, tasks } = self;
        discovery.stop().await;
        let accepted = async {
            match tasks {
                Some(tasks) => tasks.drain(grace).await,
                None => true,
            }
        };
        let (accepted, received) = tokio::join!(accepted, responses.drain(grace));
        accepted && received
    }
}

impl fmt::Debug for PeerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerService")
            .field("accepts_tasks", &self.tasks.is_some())
            .finish_non_exhaustive()
    }
}
