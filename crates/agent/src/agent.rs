//! A running agent and its conversations.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{
    AgentName, MessageId, SessionId, Spending, UserMessage,
    conversation::{AgentOverview, AgentTool},
    outside_text::plain,
    trace,
    user::TurnOutcome,
};
use rockbot_tools::{BudgetLimits, EntryPoint};
use tokio::{sync::oneshot, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    approvals::Approvals,
    conversation::{ConversationError, Conversations},
    definition::AgentDefinition,
    delegation::{Delegation, TaskHost, is_task_session},
    event::{ProgressSink, TurnAnswer, TurnEnd},
    message::{Inbound, PendingMessage, RecordedMessage, Rejection, ResumeRequest},
    message_media::{check_media, check_recorded_size, media_data},
    origin::TurnOrigin,
    parts::AgentParts,
    session::{Session, SessionRegistry, ShutdownSignal},
    turn::{TurnSetup, UsableTool},
};

/// Time limit for cancelled turns to return their answer.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// A running agent. Clones share it; its conversations end when the last clone is dropped.
///
/// Each conversation has its own task: conversations run in parallel, and the turns of one
/// conversation run one after the other. They are recorded step by step in
/// [`AgentParts::conversations`](crate::AgentParts::conversations), from which another process continues.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

struct Inner {
    setup: Arc<TurnSetup>,
    registry: Arc<SessionRegistry>,
    shutdown: ShutdownSignal,
    /// Number of processes that serve the agent with other conversations.
    foreign_processes: Arc<AtomicU32>,
    /// The tasks of the conversations; dropping the set aborts them.
    tasks: Mutex<JoinSet<()>>,
}

impl Agent {
    /// Creates an agent without conversations. [`send`](Self::send) needs a Tokio runtime.
    #[must_use]
    pub fn new(parts: AgentParts) -> Self {
        let registry = Arc::new(SessionRegistry::new(parts.limits.max_sessions));
        let inner = Arc::new(Inner {
            setup: Arc::new(TurnSetup::new(parts.with_adapted_model())),
            registry,
            shutdown: ShutdownSignal::default(),
            foreign_processes: Arc::default(),
            tasks: Mutex::default(),
        });
        let closing = inner.shutdown.closing.clone();
        let host: Arc<dyn TaskHost> = Arc::new(Host { agent: Arc::downgrade(&inner), closing });
        inner.setup.set_host(host.clone());
        inner.setup.report_narrow_window(inner.setup.narrow_window());
        if let Some(delegation) = &inner.setup.delegation {
            let setup = &inner.setup;
            let name = setup.definition.name.clone();
            let memory = setup.working_memory().cloned();
            delegation.attach(name, setup.conversations.clone(), host, memory);
        }
        Self { inner }
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn name(&self) -> &AgentName {
        &self.definition().name
    }

    /// Returns the agent's definition.
    #[must_use]
    pub fn definition(&self) -> &AgentDefinition {
        &self.inner.setup.definition
    }

    /// Returns warnings about the agent's configuration, for the user: that the context window of its model is
    /// small for its prompts and tools.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.inner.setup.narrow_window().iter().map(ToString::to_string).collect()
    }

    /// Returns the approval backend, if calls may need approval.
    pub(crate) fn approvals(&self) -> Option<&Arc<Approvals>> {
        self.inner.setup.approvals.as_ref()
    }

    /// Returns the delegated work of the agent, if it may delegate any.
    pub(crate) fn delegation(&self) -> Option<&Arc<Delegation>> {
        self.inner.setup.delegation.as_ref()
    }

    /// Returns the counter of processes that serve the agent with other conversations. Its inbox watch sets it.
    pub(crate) fn foreign_processes(&self) -> &Arc<AtomicU32> {
        &self.inner.foreign_processes
    }

    /// Returns the most that is spent on one message.
    pub(crate) fn budget_limits(&self) -> BudgetLimits {
        self.inner.setup.limits.budget
    }

    /// Returns the time limit of a turn.
    pub(crate) fn turn_timeout(&self) -> Duration {
        self.inner.setup.limits.turn_timeout
    }

    /// Returns the number of conversations in memory.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.inner.registry.len()
    }

    /// Returns the stored conversations.
    #[must_use]
    pub fn conversations(&self) -> &Conversations {
        &self.inner.setup.conversations
    }

    /// Returns the total spending of all turns since the start, including turns of agents that they called.
    #[must_use]
    pub fn spending(&self) -> Spending {
        self.inner.setup.meter.total()
    }

    /// Describes the agent and the tools that a turn of a user may use now. Definitions of MCP servers that do
    /// not arrive within a few seconds are left out.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn overview(&self) -> AgentOverview {
        let tools = self.inner.setup.usable_tools().await;
        let more = tools.len().saturating_sub(AgentOverview::MAX_TOOLS);
        let listed = tools.into_iter().take(AgentOverview::MAX_TOOLS).map(|usable| {
            let UsableTool { registration: tool, is_announced } = usable;
            let text = tool.model_description();
            let first = text.lines().next().unwrap_or_default();
            let first = first.split_inclusive(". ").next().unwrap_or_default();
            AgentTool {
                summary: plain(first.trim_end(), AgentTool::MAX_SUMMARY),
                name: tool.name,
                source: tool.source,
                hints: tool.hints,
                is_announced,
            }
        });
        AgentOverview {
            name: self.name().clone(),
            description: self.definition().description.clone(),
            model: self.inner.setup.model_name().to_owned(),
            tools: listed.collect(),
            more_tools: u32::try_from(more).unwrap_or(u32::MAX),
            foreign_processes: self.foreign_processes().load(Ordering::Relaxed),
        }
    }

    /// Sends a user message to a conversation and waits for the answer. An unknown session id starts a
    /// new conversation.
    ///
    /// A message to a conversation whose turn is running steers that turn: the turn takes it in between
    /// two tool or model calls, `progress` receives [`TurnEvent::Steered`](crate::TurnEvent::Steered),
    /// and the answer of the turn answers both messages. Only the message that started a turn receives
    /// its text and tool events. A message with `cancel` ends the running turn and all queued messages.
    ///
    /// Failures are reported in the answer: see [`TurnAnswer::outcome`].
    ///
    /// # Cancellation
    /// The turn continues when the future is dropped. To end it, send a message with `cancel`.
    pub async fn send(&self, message: UserMessage, progress: ProgressSink) -> TurnAnswer {
        self.run_turn(TurnOrigin::new(EntryPoint::UserTurn), message, progress).await
    }

    /// Runs a turn with another origin than a user message. The origin determines which tools it may use.
    /// A message steers only a turn with the same tool profile; otherwise it waits for its own turn.
    ///
    /// A message id that was answered before gets the recorded answer at once; the id of a turn without an
    /// answer joins or continues that turn. Everything else is recorded, then run. See
    /// [`TurnAnswer::ended`] on what to do with the answer.
    ///
    /// # Cancellation
    /// As with [`send`](Self::send). A turn with a parent also ends with the parent's cancellation token
    /// and by the parent's deadline.
    pub async fn run_turn(
        &self,
        mut origin: TurnOrigin,
        message: UserMessage,
        progress: ProgressSink,
    ) -> TurnAnswer {
        origin.accepts_input = message.accepts_input && origin.entry == EntryPoint::UserTurn;
        if let Some(rejected) = self.reject_invalid(&origin, &message) {
            return rejected;
        }
        if let (Some(delegation), Some(reply_to)) = (self.delegation(), &origin.reply_to)
            && origin.entry == EntryPoint::UserTurn
            && !message.cancel
        {
            delegation.user_returned(&message.session_id, reply_to.clone());
        }
        let (answer, answered) = oneshot::channel();
        let requester = trace::current();
        let UserMessage { session_id, text, cancel, media, .. } = message;
        let media = media.into_iter().filter_map(media_data).collect();
        let (sent, entry) = (origin.message.clone(), origin.entry);
        let id = sent.clone().unwrap_or_else(MessageId::generate);
        let message = PendingMessage { id, text, media, origin, progress, requester, answer };
        let inbound = if cancel { Inbound::Cancel(message) } else { Inbound::Message(message) };
        match self.deliver(&session_id, inbound) {
            Ok(()) => {}
            Err(Rejection::Closed) if self.conversations().is_durable() => {
                return TurnAnswer::released();
            }
            // Its scheduler sends it again.
            Err(rejection) if rejection.is_temporary() && entry == EntryPoint::ScheduledTask => {
                return rejection.deferred();
            }
            Err(rejection) => return self.rejected(rejection, &session_id, sent.as_ref()).await,
        }
        answered.await.unwrap_or_else(|_| self.lost())
    }

    /// Continues the turn of a conversation that has no answer, or returns an answer that was not
    /// published. Returns `None` if there is neither, or the turn runs in this process. `progress` gets
    /// the recorded message of a turn, and returns the sink for its progress; it is not called for an
    /// answer.
    ///
    /// Call [`Conversations::unmark`] once the answer was published. Turns of sub-agents are continued
    /// by the turns that called them.
    ///
    /// # Cancellation
    /// The turn continues when the future is dropped.
    pub async fn resume(
        &self,
        session: &SessionId,
        progress: impl FnOnce(&RecordedMessage) -> ProgressSink + Send + 'static,
    ) -> Option<(RecordedMessage, TurnAnswer)> {
        let (done, answered) = oneshot::channel();
        let request = ResumeRequest { progress: Box::new(progress), done };
        self.deliver(session, Inbound::Resume(request)).ok()?;
        answered.await.ok().flatten()
    }

    /// Returns a function that leaves a conversation that another process runs: its turn ends as
    /// [`TurnEnd::Fenced`], and its calls are dropped without a cancel. It does not keep the agent alive.
    pub(crate) fn loss_handler(&self) -> Arc<dyn Fn(&SessionId) + Send + Sync> {
        let agent = Arc::downgrade(&self.inner);
        Arc::new(move |session| {
            if let Some(agent) = agent.upgrade() {
                agent.registry.lose(session);
            }
        })
    }

    /// Deletes a conversation, with those of its sub-agents and what working memory holds for it. Returns
    /// `true` if it existed.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub async fn delete_conversation(
        &self,
        session: &SessionId,
    ) -> Result<bool, ConversationError> {
        self.inner.setup.delete_sub_conversations(session, u64::MAX).await?;
        self.inner.setup.delete_handed_off(session).await?;
        if let Some(delegation) = self.delegation() {
            self.delete_delegated(delegation, session).await?;
        }
        let existed = self.conversations().delete(session).await?;
        self.inner.setup.delete_session_data(session).await?;
        Ok(existed)
    }

    /// Deletes the conversations of sub-agents that a conversation started, and the records of their work.
    async fn delete_delegated(
        &self,
        delegation: &Delegation,
        session: &SessionId,
    ) -> Result<(), ConversationError> {
        loop {
            let tasks = delegation.with_conversation(session).await?;
            if tasks.is_empty() {
                return delegation.delete_folds(session).await;
            }
            for (task, own) in tasks {
                self.inner.setup.delete_sub_conversations(&own, u64::MAX).await?;
                self.conversations().delete(&own).await?;
                self.inner.setup.delete_session_data(&own).await?;
                delegation.delete_task(session, &task).await?;
            }
        }
    }

    fn deliver(&self, session: &SessionId, inbound: Inbound) -> Result<(), Rejection> {
        let is_durable = self.conversations().is_durable();
        self.inner.registry.deliver(session, inbound, is_durable, |inbox, id| {
            let (setup, registry) = (self.inner.setup.clone(), self.inner.registry.clone());
            let session = Session::new(id, inbox, setup, registry, self.inner.shutdown.clone());
            let mut tasks = self.inner.tasks();
            while let Some(ended) = tasks.try_join_next() {
                if let Err(error) = ended {
                    error!(%error, "conversation task panicked; this is a bug");
                }
            }
            tasks.spawn(session.run());
        })
    }

    /// Returns the answer to a message that could not be delivered to its conversation. A recorded one is
    /// not rejected: it has a turn, or an answer.
    async fn rejected(
        &self,
        rejection: Rejection,
        session: &SessionId,
        id: Option<&MessageId>,
    ) -> TurnAnswer {
        if rejection.is_temporary()
            && self.conversations().is_durable()
            && let Some(id) = id
            && !matches!(self.conversations().message(session, id).await, Ok(None))
        {
            return rejection.deferred();
        }
        rejection.into()
    }

    /// Returns the answer of a turn whose task panicked.
    fn lost(&self) -> TurnAnswer {
        let text = "The conversation was lost because of an error inside the agent. \
                    What the tools did is not undone. Send the message again.";
        let is_durable = self.conversations().is_durable();
        let ended = if is_durable { TurnEnd::Released } else { TurnEnd::Unrecorded };
        TurnAnswer::new(TurnOutcome::ModelFailed, text).with_end(ended)
    }

    /// Returns the answer to a message that is too long or empty, whose images or recordings are not valid, or
    /// that is for a sub-agent.
    fn reject_invalid(&self, origin: &TurnOrigin, message: &UserMessage) -> Option<TurnAnswer> {
        if is_task_session(&message.session_id) && origin.task().is_none() {
            let text = "The conversation belongs to a sub-agent, which takes no messages. Write to the \
                        conversation that started it; `rockbot tasks cancel` ends it.";
            return Some(
                TurnAnswer::new(TurnOutcome::ModelFailed, text).with_end(TurnEnd::Unrecorded),
            );
        }
        let (bytes, limit) = (message.text.len(), self.inner.setup.limits.message_bytes);
        // Messages about delegated work have bounds of their own.
        if bytes > limit && origin.work.is_none() {
            let text = format!(
                "The message has {bytes} bytes, but at most {limit} are allowed. Send a shorter one."
            );
            return Some(TurnAnswer::new(TurnOutcome::Overloaded, text));
        }
        let media = check_media(&message.media).and_then(|()| check_recorded_size(message));
        if let Err(problem) = media {
            let text = format!("{problem} Nothing was done.");
            return Some(TurnAnswer::new(TurnOutcome::Overloaded, text));
        }
        (message.text.trim().is_empty() && !message.cancel).then(|| {
            TurnAnswer::new(TurnOutcome::Completed, "The message is empty. Send some text.")
        })
    }

    /// Rejects new messages and waits up to `grace` for running turns; then cancels the remaining ones.
    /// Returns `true` if every turn ended within `grace`.
    ///
    /// Turns of conversations that outlive the process are not cancelled: they are left after their step,
    /// and those that need longer than `grace` at once. Another process continues them.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.inner.registry.close();
        self.inner.shutdown.closing.cancel();
        let mut tasks = std::mem::take(&mut *self.inner.tasks());
        let mut all_finished = async || while tasks.join_next().await.is_some() {};
        if timeout(grace, all_finished()).await.is_ok() {
            info!(agent = %self.name(), "all turns finished");
            return true;
        }
        warn!(agent = %self.name(), ?grace, "shutdown grace period over; ending turns");
        if self.conversations().is_durable() {
            self.inner.shutdown.handover.cancel();
        } else {
            self.inner.shutdown.cancel_turns.cancel();
        }
        let _ = timeout(CANCEL_GRACE, all_finished()).await;
        false
    }
}

/// The access of delegated work to its agent, which it does not keep alive.
struct Host {
    agent: Weak<Inner>,
    closing: CancellationToken,
}

impl TaskHost for Host {
    fn start_turn(
        &self,
        origin: TurnOrigin,
        message: UserMessage,
        progress: ProgressSink,
    ) -> oneshot::Receiver<TurnAnswer> {
        let (answer, answered) = oneshot::channel();
        let Some(inner) = self.agent.upgrade() else { return answered };
        let id = origin.message.clone().unwrap_or_else(MessageId::generate);
        let UserMessage { session_id, text, .. } = message;
        let requester = origin.work.as_ref().map_or_else(trace::current, |work| work.trace.clone());
        let media = Vec::new();
        let message = PendingMessage { id, text, media, origin, progress, requester, answer };
        let agent = Agent { inner };
        match agent.deliver(&session_id, Inbound::Message(message)) {
            Ok(()) => answered,
            Err(rejection) => {
                let (answer, answered) = oneshot::channel();
                let _ = answer.send(match rejection {
                    Rejection::Closed => TurnAnswer::released(),
                    rejection => rejection.deferred(),
                });
                answered
            }
        }
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(inner) = self.agent.upgrade() {
            inner.tasks().spawn(task);
        }
    }

    fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }
}

impl Inner {
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", self.name())
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}
