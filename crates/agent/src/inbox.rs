//! The agent's inbox on the bus: consumes user messages and publishes progress and answers.

mod approval_listener;
mod forward;
mod handler;
mod incoming;
mod jitter;
mod leases;
mod order;
mod own_queue;
mod ownership;
mod records;
mod renewal;
mod replies;
mod resumption;
mod retained_queue;
mod sharing;
mod turn_scan;
mod user_channel;

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Publication, Subscription, Worker, worker::WorkerStats};
use rockbot_contracts::{
    InstanceId, QueueSpec,
    topology::{user_message, user_message_at},
};
use tokio_util::sync::CancellationToken;

use self::ownership::UnsearchedLeases;
pub(crate) use self::ownership::{Claim, Ownership};
pub use self::sharing::Sharing;
use self::{
    approval_listener::ApprovalListener,
    forward::Forwarder,
    handler::{InboxHandler, Replicas},
    order::MessageOrder,
    own_queue::OwnQueueHandler,
    turn_scan::TurnScan,
    user_channel::BusUserChannel,
};
use crate::{
    agent::{Agent, CANCEL_GRACE},
    agent_processes::AgentProcesses,
    inbox_watch::{InboxWatch, Registration},
};

/// The consumer of an agent's inbox. Dropping it aborts running turns. The broker redelivers their
/// messages, and their turns are continued from what was recorded.
#[derive(Debug)]
pub struct AgentInbox {
    worker: Worker,
    agent: Agent,
    _approvals: Option<ApprovalListener>,
    stop: CancellationToken,
    role: Role,
}

/// The part of a process in addition to the inbox.
#[derive(Debug)]
enum Role {
    /// It warns of other processes, because the conversations are its own.
    Alone(InboxWatch),
    /// It shares the conversations with other processes, and warns of those that have others.
    Replica { own_queue: Worker, scan: TurnScan, ownership: Ownership, watch: InboxWatch },
}

/// Consumes `user.message.<agent>` and answers every message exactly once. The answer is the last reply.
/// Replies arrive in the order of their sequence numbers; a gap means that progress was lost.
///
/// `concurrency` bounds the messages in progress. A message is in progress until its turn ends, so allow
/// for messages that steer or cancel a running turn. The conversations are those of this process: several
/// processes of one agent lose context, which each of them logs. [`serve_shared`] shares them.
///
/// A delivery stays unsettled until its answer is confirmed. A redelivered message is answered from the
/// record of its conversation. A message whose time budget has expired before it was recorded is not run,
/// because its sender no longer waits.
///
/// If the conversations are stored, a turn that this process leaves, because it shuts down or another
/// process continues it, gets a final reply with that reason. Its message is not answered by that: the turn
/// continues when the conversation is resumed, and its answer is recorded.
///
/// # Errors
/// Fails if the queue cannot be consumed.
pub async fn serve(
    agent: Agent,
    bus: Arc<dyn Bus>,
    concurrency: u16,
) -> Result<AgentInbox, ConsumeError> {
    let stop = CancellationToken::new();
    let approvals = ApprovalListener::start(&agent, bus.as_ref()).await?;
    let handler = InboxHandler {
        agent: agent.clone(),
        bus: bus.clone(),
        dedup: Arc::default(),
        replicas: None,
        stop: stop.clone(),
    };
    if let Some(delegation) = agent.delegation() {
        delegation.set_users(Arc::new(BusUserChannel { bus: bus.clone() }));
        let conversations = agent.conversations();
        if conversations.is_durable() {
            // Another process of the same user may use the store.
            let sharing = Sharing::new(conversations.store().clone(), InstanceId::generate());
            let ownership = leases(&agent, &sharing, sharing.incarnation());
            delegation.set_leases(Arc::new(UnsearchedLeases(ownership)));
        }
    }
    let queue = QueueSpec::work(&user_message(agent.name()));
    let name = queue.name.clone();
    let subscription = Subscription::new(queue, concurrency);
    let worker = Worker::start(bus.as_ref(), subscription, Arc::new(handler)).await?;
    let role = Role::Alone(InboxWatch::start(bus, &agent, name, None));
    Ok(AgentInbox { worker, agent, _approvals: approvals, stop, role })
}

/// Consumes the inbox of an agent whose conversations are in a store that all processes of the agent use.
/// Each process may receive any message:
///
/// - A message for a conversation that another process runs is passed on to it, and the delivery stays
///   unsettled until that process has answered. Steering and cancels reach a turn in this way.
/// - A turn whose process is gone continues here, from its last recorded step.
/// - A process that stops puts its turns down, and others continue them at once.
/// - A turn whose step could not be recorded, because the store was unavailable for too long, gets no final
///   reply for that. A [`TaskStatus`](rockbot_contracts::ReplyBody::TaskStatus) reports it, and a process
///   continues the turn when the store is available again.
///
/// See [`serve`] for the rest.
///
/// # Errors
/// Fails if a queue cannot be consumed.
pub async fn serve_shared(
    agent: Agent,
    bus: Arc<dyn Bus>,
    concurrency: u16,
    sharing: Sharing,
) -> Result<AgentInbox, ConsumeError> {
    let stop = CancellationToken::new();
    let approvals = ApprovalListener::start(&agent, bus.as_ref()).await?;
    let own = sharing.incarnation();
    let name = agent.name().clone();
    let ownership = leases(&agent, &sharing, own.clone());
    if let Some(delegation) = agent.delegation() {
        delegation.set_users(Arc::new(BusUserChannel { bus: bus.clone() }));
        delegation.set_leases(Arc::new(ownership.clone()));
    }
    let forwarder = Forwarder::new(bus.clone(), name.clone(), own.clone(), sharing.lease / 2);
    let handler = Arc::new(InboxHandler {
        agent: agent.clone(),
        bus: bus.clone(),
        dedup: Arc::default(),
        replicas: Some(Replicas {
            ownership: ownership.clone(),
            forwarder,
            order: MessageOrder::default(),
        }),
        stop: stop.clone(),
    });
    // Before the first lease, after which other processes forward messages to this queue.
    let own_handler = OwnQueueHandler { inbox: handler.clone(), user: sharing.user.clone() };
    let own_queue = QueueSpec::inbox(&user_message_at(&name, &own));
    // Receipts must pass while forwarded messages are in progress.
    let prefetch = concurrency.saturating_mul(2);
    let own_queue = Subscription::new(own_queue, prefetch);
    let own_queue = Worker::start(bus.as_ref(), own_queue, Arc::new(own_handler)).await?;
    let registration = Registration { processes: AgentProcesses::new(sharing.store, &name), own };
    registration.renew().await;
    let inbox = QueueSpec::work(&user_message(&name));
    let inbox_name = inbox.name.clone();
    let subscription = Subscription::new(inbox, concurrency);
    let worker = Worker::start(bus.as_ref(), subscription, handler.clone()).await?;
    let scan = TurnScan::start(handler, sharing.scan_interval, concurrency);
    let watch = InboxWatch::start(bus, &agent, inbox_name, Some(registration));
    let role = Role::Replica { own_queue, scan, ownership, watch };
    Ok(AgentInbox { worker, agent, _approvals: approvals, stop, role })
}

/// Returns the leases of the process `owner` on the conversations of its agent.
fn leases(agent: &Agent, sharing: &Sharing, owner: InstanceId) -> Ownership {
    let (store, name) = (sharing.store.clone(), agent.name().clone());
    Ownership::new(store, name, owner, sharing.lease, agent.loss_handler())
}

impl AgentInbox {
    /// Returns the statistics of the consumer.
    #[must_use]
    pub fn stats(&self) -> &Arc<WorkerStats> {
        self.worker.stats()
    }

    /// Waits until a queue is no longer consumed although nothing stopped its worker. The process must end
    /// then, to be started again.
    pub async fn ended(&self) {
        match &self.role {
            Role::Alone(_) => self.worker.ended().await,
            Role::Replica { own_queue, .. } => tokio::select! {
                () = self.worker.ended() => {}
                () = own_queue.ended() => {}
            },
        }
    }

    /// Returns the leases of this process; `None` if it does not share the conversations.
    pub(crate) fn ownership(&self) -> Option<&Ownership> {
        match &self.role {
            Role::Alone(_) => None,
            Role::Replica { ownership, .. } => Some(ownership),
        }
    }

    /// Stops consuming. Without sharing, waits up to `grace` for running turns, cancels the remaining ones,
    /// and publishes all answers. With sharing, puts the running turns down, for other processes to
    /// continue. Returns `true` if no turn was cancelled and every answer was published.
    pub async fn drain(self, grace: Duration) -> bool {
        let Self { worker, agent, _approvals, stop, role } = self;
        // After its turn, the rest of the progress and then the answer are published.
        let limit = grace + CANCEL_GRACE + 2 * Publication::DEFAULT_TIMEOUT;
        let answered = worker.drain(limit);
        match role {
            Role::Alone(watch) => {
                watch.stop().await;
                let (answered, ended) = tokio::join!(answered, agent.shut_down(grace));
                answered && ended
            }
            Role::Replica { own_queue, scan, ownership, watch } => {
                stop.cancel();
                let (answered, forwarded, ended, ()) = tokio::join!(
                    answered,
                    own_queue.drain(limit),
                    agent.shut_down(grace),
                    scan.stop(),
                );
                tokio::join!(ownership.released(), watch.stop());
                answered && forwarded && ended
            }
        }
    }
}
