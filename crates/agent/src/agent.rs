//! An agent in one process: its conversations, and how to talk to them.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rockbot_contracts::{AgentName, Spending, UserMessage, trace, user::TurnOutcome};
use rockbot_tools::EntryPoint;
use tokio::{sync::oneshot, task::JoinSet, time::timeout};
use tracing::{error, info, warn};

use crate::{
    approvals::Approvals,
    definition::AgentDefinition,
    event::{ProgressSink, TurnAnswer},
    message::{Inbound, Said},
    origin::TurnOrigin,
    parts::AgentParts,
    session::{Roster, Session, Stop},
    turn::TurnSetup,
};

/// How long turns that were cancelled have to say so.
pub(crate) const WIND_DOWN: Duration = Duration::from_secs(10);

/// A running agent. Clones share it; its conversations end with the last clone.
///
/// Each conversation has a task of its own, so conversations run in parallel and one at a time
/// within itself. They live in this process's memory.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

struct Inner {
    setup: Arc<TurnSetup>,
    roster: Arc<Roster>,
    stop: Stop,
    /// The conversations' tasks; dropping them ends them.
    tasks: Mutex<JoinSet<()>>,
}

impl Agent {
    /// An agent without conversations. Needs a Tokio runtime once it is spoken to.
    #[must_use]
    pub fn new(parts: AgentParts) -> Self {
        let roster = Arc::new(Roster::new(parts.limits.max_sessions));
        let inner = Inner {
            setup: Arc::new(TurnSetup::new(parts)),
            roster,
            stop: Stop::default(),
            tasks: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &AgentName {
        &self.definition().name
    }

    /// Who it is and what it may do.
    #[must_use]
    pub fn definition(&self) -> &AgentDefinition {
        &self.inner.setup.definition
    }

    /// Whom it asks about calls.
    pub(crate) fn approvals(&self) -> Option<&Arc<Approvals>> {
        self.inner.setup.approvals.as_ref()
    }

    /// Its longest turn.
    pub(crate) fn turn_timeout(&self) -> Duration {
        self.inner.setup.limits.turn_timeout
    }

    /// How many conversations it holds.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.inner.roster.len()
    }

    /// What its turns took since it began, with the loops of other agents that they ran.
    #[must_use]
    pub fn spent(&self) -> Spending {
        self.inner.setup.spent.total()
    }

    /// Says something to a conversation and waits for the answer; a new conversation begins with a
    /// new id.
    ///
    /// A message to a conversation whose turn is running is taken into that turn between two tools
    /// or model calls: `progress` hears [`TurnEvent::Steered`](crate::TurnEvent::Steered), and the
    /// turn's answer is the answer to both. Only the message that began a turn hears of its text
    /// and tools. With `cancel` the running turn and what waits behind it end.
    ///
    /// It always answers: what goes wrong is in [`TurnAnswer::outcome`] and in words.
    ///
    /// # Cancellation
    /// Dropping the future stops listening; the turn goes on. Send a message with `cancel` to end
    /// it.
    pub async fn message(&self, message: UserMessage, progress: ProgressSink) -> TurnAnswer {
        self.turn(TurnOrigin::new(EntryPoint::UserTurn), message, progress).await
    }

    /// The same for a turn that begins for another reason, which decides what it may use. A message
    /// steers only a turn of the same profile, and waits for its own turn otherwise.
    ///
    /// # Cancellation
    /// As with [`message`](Self::message); work that another turn handed over ends with that turn's
    /// token and by its deadline.
    pub async fn turn(
        &self,
        origin: TurnOrigin,
        message: UserMessage,
        progress: ProgressSink,
    ) -> TurnAnswer {
        if let Some(refused) = self.unfit(&message) {
            return refused;
        }
        let (answer, answered) = oneshot::channel();
        let requester = trace::current();
        let said = Said { text: message.text, origin, progress, requester, answer };
        let inbound = if message.cancel { Inbound::Cancel(said) } else { Inbound::Say(said) };
        let delivered = self.inner.roster.deliver(&message.session_id, inbound, |inbox, id| {
            let (setup, roster) = (self.inner.setup.clone(), self.inner.roster.clone());
            let session = Session::new(id, inbox, setup, roster, self.inner.stop.clone());
            let mut tasks = self.inner.tasks();
            while let Some(ended) = tasks.try_join_next() {
                if let Err(error) = ended {
                    error!(%error, "a conversation crashed; this is a bug");
                }
            }
            tasks.spawn(session.run());
        });
        if let Err(refusal) = delivered {
            return refusal.into();
        }
        answered.await.unwrap_or_else(|_| {
            let text = "This conversation was lost inside the agent, in the middle of the turn. \
                        What its tools did is not undone. Ask again.";
            TurnAnswer::new(TurnOutcome::ModelFailed, text)
        })
    }

    /// What is wrong with a message whoever would take it.
    fn unfit(&self, message: &UserMessage) -> Option<TurnAnswer> {
        let (bytes, limit) = (message.text.len(), self.inner.setup.limits.message_bytes);
        if bytes > limit {
            let text =
                format!("The message has {bytes} bytes, at most {limit}; send less at once.");
            return Some(TurnAnswer::new(TurnOutcome::Overloaded, text));
        }
        (message.text.trim().is_empty() && !message.cancel).then(|| {
            TurnAnswer::new(TurnOutcome::Completed, "The message is empty; say something.")
        })
    }

    /// Takes no more messages, lets running turns end within `grace`, then cancels the rest, which
    /// answer that they were cancelled. Whether all ended by themselves.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.inner.roster.close();
        self.inner.stop.closing.cancel();
        let mut tasks = std::mem::take(&mut *self.inner.tasks());
        let mut all_ended = async || while tasks.join_next().await.is_some() {};
        if timeout(grace, all_ended()).await.is_ok() {
            info!(agent = %self.name(), "every turn ended");
            return true;
        }
        warn!(agent = %self.name(), ?grace, "cancelling the turns that are left");
        self.inner.stop.abandon.cancel();
        let _ = timeout(WIND_DOWN, all_ended()).await;
        false
    }
}

impl Inner {
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
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
