//! The remote agents of a gateway, each served by a task of its own.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Subscription, Worker};
use rockbot_contracts::{AgentName, InstanceId, topology::agent_task_queue};
use rockbot_egress::EgressError;
use rockbot_store::{DocumentError, Key, Lease, LeaseError, Store};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    announcer::Announcer,
    card::RemoteCard,
    card_keys::{CardKeys, CardKeysError},
    client::PeerClient,
    intake::Intake,
    record::Records,
    responder::Responder,
    runner::{Runner, RunnerParts},
    section::RemoteAgentSection,
};

/// Time to live of the right to serve a remote agent.
const LEASE_TTL: Duration = Duration::from_secs(10);
/// Time without a renewal after which the right counts as lost.
const GIVE_UP: Duration = Duration::from_secs(7);
/// Pause before the right is requested again.
const LEASE_PAUSE: Duration = Duration::from_secs(2);
/// Pauses before a card that could not be read is read again.
const CARD_PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// Time after which a card is read again.
const CARD_AGE: Duration = Duration::from_secs(600);
/// Pause before an agent whose queue was lost is served again.
const RESTART_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of requests that are recorded at a time.
const INTAKE: u16 = 16;
/// Time limit for an announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the announcement of the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the tasks of remote agents. Dropping it ends that in the middle; another process continues.
#[derive(Debug)]
pub struct RemoteAgents {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Why remote agents cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RemoteAgentsError {
    /// Remote agents cannot be dialed.
    #[error("gateway.remote_agents: the trusted certificates of this system cannot be read: {0}")]
    Egress(#[from] EgressError),
    /// The keys of a card cannot be used.
    #[error("gateway.remote_agents.{agent}.card_keys_file: {}: {error}", path.display())]
    CardKeys {
        /// Name of the remote agent.
        agent: AgentName,
        /// The file.
        path: PathBuf,
        /// The reason.
        error: CardKeysError,
    },
}

/// Why a remote agent is not served.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Bus(#[from] ConsumeError),
    #[error("its open tasks cannot be read: {0}")]
    Store(#[from] DocumentError),
}

/// Serves one remote agent.
struct RemoteAgent {
    name: AgentName,
    section: RemoteAgentSection,
    client: Arc<PeerClient>,
    bus: Arc<dyn Bus>,
    store: Arc<dyn Store>,
    instance: InstanceId,
    grace: Duration,
}

impl RemoteAgents {
    /// Starts to serve remote agents, whose sections must be valid. `bus` returns the connection whose user
    /// may act as an agent. `grace` is the time in which a request that was begun may end at the stop.
    ///
    /// # Errors
    /// When the trusted certificates, or the keys of cards, cannot be read.
    pub fn start(
        agents: &BTreeMap<AgentName, RemoteAgentSection>,
        store: &Arc<dyn Store>,
        instance: &InstanceId,
        grace: Duration,
        bus: impl Fn(&AgentName) -> Arc<dyn Bus>,
    ) -> Result<Self, RemoteAgentsError> {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for (name, section) in agents {
            let keys = section.card_keys_file.as_ref().map(|path| {
                CardKeys::read(path).map_err(|error| RemoteAgentsError::CardKeys {
                    agent: name.clone(),
                    path: path.clone(),
                    error,
                })
            });
            let keys = keys.transpose()?;
            let agent = RemoteAgent {
                name: name.clone(),
                section: section.clone(),
                client: Arc::new(PeerClient::new(name.clone(), section, keys)?),
                bus: bus(name),
                store: store.clone(),
                instance: instance.clone(),
                grace,
            };
            let stop = stop.clone();
            tasks.spawn(async move { agent.run(&stop).await });
        }
        Ok(Self { stop, tasks })
    }

    /// Announces the stop of the agents, and waits until requests that were begun have ended, at most for the grace.
    /// Other processes, or the next one, continue the tasks.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                error!(%error, "service of a remote agent failed");
            }
        }
    }
}

impl RemoteAgent {
    /// Serves the agent whenever this process has the right to, until `stop` is cancelled.
    async fn run(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let pause = match self.acquire().await {
                Ok(lease) => {
                    self.serve_with(lease, stop).await;
                    RESTART_PAUSE
                }
                Err(LeaseError::HeldBy { .. }) => LEASE_PAUSE,
                Err(error) => {
                    warn!(agent = %self.name, %error, "remote agent not served; retrying");
                    LEASE_PAUSE
                }
            };
            stop.run_until_cancelled(sleep(pause)).await;
        }
    }

    async fn acquire(&self) -> Result<Lease, LeaseError> {
        let key = Key::new(["gateway", "remote-agents", self.name.as_str()]);
        let key = key.map_err(|error| LeaseError::Store(error.into()))?;
        Lease::acquire(self.store.clone(), key, self.instance.as_str(), LEASE_TTL).await
    }

    /// Serves the agent until `stop` is cancelled, or the lease or the queue is lost.
    async fn serve_with(&self, lease: Lease, stop: &CancellationToken) {
        let ended = CancellationToken::new();
        let keeping = lease.keep_alive(GIVE_UP, &ended);
        tokio::pin!(keeping);
        tokio::select! {
            _ = &mut keeping => {
                warn!(agent = %self.name, "right to serve a remote agent lost");
            }
            served = self.serve(stop) => {
                if let Err(error) = served {
                    warn!(agent = %self.name, %error, "remote agent not served; retrying");
                }
                ended.cancel();
                if let Some(lease) = keeping.await
                    && let Err(error) = lease.release().await
                {
                    warn!(agent = %self.name, %error, "right to serve a remote agent not released");
                }
            }
        }
    }

    async fn serve(&self, stop: &CancellationToken) -> Result<(), ServeError> {
        let Some(card) = self.first_card(stop).await else { return Ok(()) };
        info!(agent = %self.name, streams = card.streams, "remote agent found");
        let mut announcer = Announcer::start(self.bus.clone()).await?;
        let runner = Runner::new(RunnerParts {
            name: self.name.clone(),
            client: self.client.clone(),
            records: Records::new(self.store.clone(), &self.name),
            responder: Responder::new(self.bus.clone(), self.name.clone()),
            card,
            idempotent: self.section.idempotent,
            concurrency: self.section.concurrency,
        });
        // Ends the tasks of the runner also if this future is dropped.
        let _guard = runner.kill_on_drop();
        runner.resume().await?;
        let intake = Arc::new(Intake::new(runner.clone(), self.section.callers.clone()));
        let subscription = Subscription::new(agent_task_queue(&self.name), INTAKE);
        let worker = Worker::start(&*self.bus, subscription, intake).await?;
        let mut card_due = Instant::now() + CARD_AGE;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = worker.ended() => break,
                is_due = announcer.due() => {
                    if !is_due {
                        break;
                    }
                    let card = runner.card();
                    let announced =
                        timeout(ANNOUNCE_TIMEOUT, announcer.announce(&card.announced, false));
                    if let Some(Err(_)) = stop.run_until_cancelled(announced).await {
                        debug!(agent = %self.name, "announcement not published in time; repeated later");
                    }
                }
                () = sleep_until(card_due) => {
                    card_due = Instant::now() + CARD_AGE;
                    match stop.run_until_cancelled(self.client.card()).await {
                        None => break,
                        Some(Ok(card)) => runner.set_card(card),
                        Some(Err(error)) => {
                            warn!(agent = %self.name, %error, "card of a remote agent not read again; keeping the last one");
                        }
                    }
                }
            }
        }
        if stop.is_cancelled() {
            let stopped = runner.card();
            let _ = timeout(STOP_TIMEOUT, announcer.announce(&stopped.announced, true)).await;
        }
        tokio::join!(worker.drain(self.grace), runner.close(self.grace));
        Ok(())
    }

    /// Reads the card until it can be read. Returns `None` at the stop.
    async fn first_card(&self, stop: &CancellationToken) -> Option<RemoteCard> {
        let (mut pause, longest) = CARD_PAUSES;
        loop {
            match stop.run_until_cancelled(self.client.card()).await? {
                Ok(card) => return Some(card),
                Err(error) => {
                    warn!(agent = %self.name, %error, ?pause, "remote agent not announced; reading its card again");
                }
            }
            stop.run_until_cancelled(sleep(pause)).await?;
            pause = (pause * 2).min(longest);
        }
    }
}
