//! The delegated work of an agent.

use std::{
    array,
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::{Mutex, RwLock};
use rockbot_contracts::{
    AgentName, AgentReply, MessageId, ReplyBody, RoutingKey, SessionId, TaskId, TaskSummary,
};
use rockbot_memory::WorkingMemory;
use rockbot_store::StoreError;
use rockbot_tools::{ToolFailure, scope::MAX_HANDOVERS};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    delegating_turn::DelegatingTurn,
    options::DelegationOptions,
    peers::Peers,
    ports::{Claimed, Delivered, TaskHost, TaskLeases, UserChannel},
    record::{TaskKind, TaskRecord, TaskRoot, session_of, task_of},
    reports::Reports,
    store::TaskStore,
};
use crate::conversation::{ConversationError, Conversations};

/// Number of locks that the conversations share.
const HANDOVER_LOCKS: usize = 64;

/// Delegated work of one agent: its sub-agents, its tasks at other agents, and their tasks for it. Starts the
/// work, lists and cancels it, and passes results on to the conversation or the agent that delegated it.
///
/// Created before the agent, because its [`tools`](Self::tools) are registered with those of the agent, and
/// passed to it in [`AgentParts::delegation`](crate::AgentParts::delegation).
pub struct Delegation {
    /// This value, for tasks that outlive a call.
    this: Weak<Self>,
    pub(super) options: DelegationOptions,
    agent: OnceLock<Attached>,
    leases: RwLock<Option<Arc<dyn TaskLeases>>>,
    users: RwLock<Option<Arc<dyn UserChannel>>>,
    peers: RwLock<Option<Arc<Peers>>>,
    /// Turns that run in this process.
    turns: Mutex<HashMap<SessionId, DelegatingTurn>>,
    /// Work that this process does.
    running: Mutex<HashMap<TaskId, RunningState>>,
    pub(super) reports: Reports,
    /// One handover of a conversation at a time, so that its limit is kept. Conversations share them by hash.
    handovers: [AsyncMutex<()>; HANDOVER_LOCKS],
    /// Permits to run turns, by [`TaskRecord::level`]. A turn that waits for an agent holds its permit: with permits
    /// in common, agents that wait for each other would wait forever.
    pub(super) permits: [Semaphore; MAX_HANDOVERS + 1],
    /// Notified when the record of work changes in this process.
    pub(super) changed: Notify,
}

/// The agent that does the work.
pub(super) struct Attached {
    pub(super) name: AgentName,
    pub(super) conversations: Conversations,
    pub(super) store: TaskStore,
    pub(super) host: Arc<dyn TaskHost>,
    /// Holds the texts that conversations share with their sub-agents, if it is on.
    pub(super) memory: Option<WorkingMemory>,
}

impl Attached {
    /// Marks the conversation of work for processes that continue it.
    pub(super) async fn mark(&self, record: &TaskRecord) -> Result<(), StoreError> {
        if let (Some(session), Some(message)) = (record.session(), record.message())
            && self.conversations.is_durable()
        {
            let marked = self.conversations.mark(&session, &message).await;
            marked.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        }
        Ok(())
    }
}

/// State of work that this process does.
struct RunningState {
    kind: TaskKind,
    cancellation: CancellationToken,
    /// It is to be continued after its end: its record changed meanwhile.
    is_renewed: bool,
}

/// Ends the registration of a running turn.
pub(crate) struct TurnGuard {
    delegation: Arc<Delegation>,
    session: SessionId,
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.delegation.turns.lock().remove(&self.session);
        // Results wait for the end of the turn that delegated the work.
        self.delegation.changed.notify_waiters();
    }
}

impl Delegation {
    /// Creates the delegated work of an agent that is created later.
    #[must_use]
    pub fn new(options: DelegationOptions) -> Arc<Self> {
        let permits = array::from_fn(|_| Semaphore::new(options.max_tasks));
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            options,
            agent: OnceLock::new(),
            leases: RwLock::default(),
            users: RwLock::default(),
            peers: RwLock::default(),
            turns: Mutex::default(),
            running: Mutex::default(),
            reports: Reports::default(),
            handovers: array::from_fn(|_| AsyncMutex::default()),
            permits,
            changed: Notify::new(),
        })
    }

    /// Sets the agent that does the work.
    pub(crate) fn attach(
        &self,
        name: AgentName,
        conversations: Conversations,
        host: Arc<dyn TaskHost>,
        memory: Option<WorkingMemory>,
    ) {
        let store = TaskStore::new(conversations.store(), &name, conversations.retention());
        if self.agent.set(Attached { name, conversations, store, host, memory }).is_err() {
            warn!("delegation is attached to an agent already; this is a bug");
        }
    }

    /// Sets how the processes of the agent share its conversations.
    pub(crate) fn set_leases(&self, leases: Arc<dyn TaskLeases>) {
        *self.leases.write() = Some(leases);
    }

    /// Sets how users receive what they wait for no longer.
    pub(crate) fn set_users(&self, users: Arc<dyn UserChannel>) {
        *self.users.write() = Some(users);
    }

    /// Sets how tasks are exchanged with other agents.
    pub(crate) fn set_peers(&self, peers: Arc<Peers>) {
        *self.peers.write() = Some(peers);
    }

    pub(super) fn peers(&self) -> Option<Arc<Peers>> {
        self.peers.read().clone()
    }

    /// Returns the number of tasks of a kind that this process does.
    pub(super) fn running_tasks(&self, kind: TaskKind) -> usize {
        self.running.lock().values().filter(|one| one.kind == kind).count()
    }

    /// Registers a running turn until the guard is dropped.
    pub(crate) fn turn_started(
        self: &Arc<Self>,
        session: &SessionId,
        turn: DelegatingTurn,
    ) -> TurnGuard {
        self.turns.lock().insert(session.clone(), turn);
        TurnGuard { delegation: self.clone(), session: session.clone() }
    }

    /// Waits until no other call of the conversation delegates work.
    pub(super) async fn lock_handovers(&self, session: &SessionId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % HANDOVER_LOCKS as u64).unwrap_or_default();
        self.handovers[index].lock().await
    }

    pub(super) fn turn(&self, session: &SessionId) -> Option<DelegatingTurn> {
        self.turns.lock().get(session).cloned()
    }

    /// Returns this value for a task that outlives the call.
    pub(super) fn shared(&self) -> Result<Arc<Self>, ToolFailure> {
        self.this.upgrade().ok_or_else(|| ToolFailure::failed("the agent is shutting down"))
    }

    pub(super) fn attached(&self) -> Option<&Attached> {
        self.agent.get()
    }

    /// Returns the agent that a call is for.
    pub(super) fn caller(&self, agent: &AgentName) -> Result<&Attached, ToolFailure> {
        self.attached().filter(|attached| attached.name == *agent).ok_or_else(|| {
            let reason = "this agent has no sub-agents; do the work yourself".to_owned();
            ToolFailure::NotPermitted { reason }
        })
    }

    /// Claims a conversation for this process. Without other processes, it is always this one's.
    pub(super) async fn claim(&self, session: &SessionId) -> Result<Claimed, StoreError> {
        let leases = self.leases.read().clone();
        match leases {
            Some(leases) => leases.claim(session).await,
            None => Ok(Claimed::Owned(Box::new(()))),
        }
    }

    /// Notes that this process does the work. Returns `None` if it does so already: it then reads the record
    /// again at its end.
    pub(super) fn begin(self: &Arc<Self>, kind: TaskKind, task: &TaskId) -> Option<RunningTask> {
        let mut running = self.running.lock();
        if let Some(known) = running.get_mut(task) {
            // The record of a sub-agent is changed by its own process only.
            known.is_renewed = kind != TaskKind::Subagent;
            return None;
        }
        let cancellation = CancellationToken::new();
        let state = RunningState { kind, cancellation: cancellation.clone(), is_renewed: false };
        running.insert(task.clone(), state);
        let (delegation, task) = (self.clone(), task.clone());
        Some(RunningTask { delegation, kind, task, cancellation })
    }

    /// Cancels the work if this process does it.
    pub(super) fn cancel_here(&self, task: &TaskId) {
        if let Some(running) = self.running.lock().get(task) {
            running.cancellation.cancel();
        }
    }

    /// Sends a reply to the user of a conversation.
    pub(super) async fn notify_user(
        &self,
        root: &TaskRoot,
        in_reply_to: MessageId,
        body: ReplyBody,
    ) -> Delivered {
        let Some(attached) = self.attached() else { return Delivered::Gone };
        let reply = AgentReply {
            session_id: root.session.clone(),
            in_reply_to,
            agent: attached.name.clone(),
            sequence: 0,
            is_final: false,
            body,
        };
        self.send(root.reply_to.clone(), reply).await
    }

    pub(super) async fn send(&self, to: Option<RoutingKey>, reply: AgentReply) -> Delivered {
        let users = self.users.read().clone();
        match (users, to) {
            (Some(users), Some(to)) => users.send(to, reply).await,
            _ => Delivered::Gone,
        }
    }

    /// Continues the open work of a conversation that no process does, and sends its user the answers that
    /// went to another address. Called when the user sends a message.
    pub(crate) fn user_returned(self: &Arc<Self>, session: &SessionId, reply_to: RoutingKey) {
        let Some(attached) = self.attached() else { return };
        let (delegation, session) = (self.clone(), session.clone());
        attached.host.spawn(Box::pin(async move {
            if let Err(error) = delegation.continue_session(&session, reply_to).await {
                warn!(session_id = %session, %error, "delegated work not continued");
            }
        }));
    }

    async fn continue_session(
        self: &Arc<Self>,
        session: &SessionId,
        reply_to: RoutingKey,
    ) -> Result<(), StoreError> {
        let Some(Attached { store, .. }) = self.attached() else { return Ok(()) };
        for kept in store.kept(session).await? {
            // The queue of a program that is gone may still accept replies.
            let was_received = kept.sent_to.as_ref() == Some(&reply_to);
            if was_received
                || self.send(Some(reply_to.clone()), kept.reply.clone()).await == Delivered::Yes
            {
                store.forget(&kept).await?;
            }
        }
        for record in store.of_session(session).await? {
            if record.folded_by.is_none() && record.kind != TaskKind::Received {
                // The user reads further replies at the new address.
                let moved = store.update(&record.task, |record| {
                    let is_moved = record.root.reply_to.as_ref() != Some(&reply_to);
                    record.root.reply_to = Some(reply_to.clone());
                    is_moved
                });
                moved.await?;
                self.start(record.kind, record.task, None);
            }
        }
        Ok(())
    }

    /// Does the work of a conversation that no process does. Returns `false` if there is no work, or if it continues
    /// later. Called by the search for open turns, which has claimed the conversation.
    pub(crate) async fn continue_task(self: &Arc<Self>, session: &SessionId) -> bool {
        let Some((kind, task)) = task_of(session) else { return false };
        let Some(running) = self.begin(kind, &task) else { return true };
        self.run(running, None).await
    }

    /// Returns the delegated work of all conversations, the oldest first, at most 2,000. That of open work has no
    /// spending: see [`add_spending`](Self::add_spending).
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn list(&self) -> Result<Vec<TaskSummary>, ConversationError> {
        let Some(Attached { store, .. }) = self.attached() else { return Ok(Vec::new()) };
        let all = store.all().await?;
        let listed = all.iter().filter(|one| !one.was_cancelled_before_request());
        Ok(listed.map(TaskRecord::summary).collect())
    }

    /// Adds the spending of open work, for which the whole log of its conversation is read. If that fails, it stays
    /// absent.
    pub(crate) async fn add_spending(&self, summary: &mut TaskSummary) {
        let is_here = task_of(&summary.task_session_id)
            .is_some_and(|(kind, task)| kind != TaskKind::Sent && task == summary.task_id);
        if is_here
            && summary.usage.is_none()
            && let Some(attached) = self.attached()
        {
            summary.usage = attached.conversations.spending(&summary.task_session_id).await;
        }
    }

    /// Returns delegated work and its result. Open work has no spending: see [`add_spending`](Self::add_spending).
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn show(
        &self,
        task: &TaskId,
    ) -> Result<Option<(TaskSummary, String)>, ConversationError> {
        let Some(Attached { store, .. }) = self.attached() else { return Ok(None) };
        let Some(record) = store.get(task).await? else { return Ok(None) };
        Ok(Some((record.summary(), record.result)))
    }

    /// Returns delegated work of a conversation whose own conversation may still be stored, at most 500.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn with_conversation(
        &self,
        session: &SessionId,
    ) -> Result<Vec<(TaskId, SessionId)>, ConversationError> {
        let Some(Attached { store, .. }) = self.attached() else { return Ok(Vec::new()) };
        let tasks = store.with_conversation(session).await?;
        let own = |(kind, task)| session_of(kind, &task).map(|own| (task, own));
        Ok(tasks.into_iter().filter_map(own).collect())
    }

    /// Deletes the records of work of a conversation, after its own conversation.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn delete_task(
        &self,
        session: &SessionId,
        task: &TaskId,
    ) -> Result<(), ConversationError> {
        let Some(Attached { store, .. }) = self.attached() else { return Ok(()) };
        Ok(store.delete_task(session, task).await?)
    }

    /// Deletes the answers and turns on results of a conversation.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn delete_folds(&self, session: &SessionId) -> Result<(), ConversationError> {
        let Some(Attached { store, .. }) = self.attached() else { return Ok(()) };
        Ok(store.delete_folds(session).await?)
    }
}

/// Work that this process does, until it is dropped.
pub(super) struct RunningTask {
    pub(super) delegation: Arc<Delegation>,
    pub(super) kind: TaskKind,
    pub(super) task: TaskId,
    pub(super) cancellation: CancellationToken,
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        let ended = self.delegation.running.lock().remove(&self.task);
        let is_closing = self
            .delegation
            .attached()
            .is_none_or(|attached| attached.host.closing().is_cancelled());
        if ended.is_some_and(|ended| ended.is_renewed) && !is_closing {
            self.delegation.start(self.kind, self.task.clone(), None);
        }
    }
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation")
            .field("options", &self.options)
            .field("running", &self.running.lock().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn handover_of_a_conversation_delays_few_others() {
        let delegation = Delegation::new(DelegationOptions::default());
        let session = |number: u32| SessionId::new(format!("s{number}")).unwrap();
        let lock = |number| delegation.lock_handovers(&session(number)).now_or_never();
        let _slow = lock(0).unwrap();
        assert!(lock(0).is_none(), "one at a time in a conversation");
        let free = (1..=1000).filter(|number| lock(*number).is_some()).count();
        assert!(free > 900, "{free} of 1000 conversations");
    }
}
