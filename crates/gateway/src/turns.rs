//! Turns that one process follows for several requests.
//!
//! An agent recognizes a repeated message by its id. Within this process, requests with the same message id
//! share one reader of the replies, and each of them receives all replies from the first one on.

mod shared_turn;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rockbot_agent::{AgentClient, ReplyError};
use rockbot_contracts::{AgentName, MessageId, UserMessage};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, Span, debug};

use self::shared_turn::SharedTurn;
pub(crate) use self::shared_turn::{Followed, Follower};

/// The turns that requests of this process follow. Dropping it ends all followers; the turns go on.
pub(crate) struct Turns {
    client: Arc<AgentClient>,
    running: Arc<Running>,
    stopped: CancellationToken,
    _stop: DropGuard,
}

type Running = Mutex<HashMap<MessageId, Arc<SharedTurn>>>;

/// Decides whether a turn without followers in this process is cancelled.
pub(crate) type AbandonCheck = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// The end of a turn whose followers are gone.
#[derive(Clone)]
pub(crate) struct WhenAbandoned {
    /// Time in which another follower may come.
    pub(crate) linger: Duration,
    /// Called after that. The turn is cancelled if it returns true.
    pub(crate) cancels: AbandonCheck,
}

impl Turns {
    pub(crate) fn new(client: Arc<AgentClient>) -> Self {
        let stopped = CancellationToken::new();
        let stop = stopped.clone().drop_guard();
        Self { client, running: Arc::default(), stopped, _stop: stop }
    }

    /// Follows a turn that a request of this process follows already; `None` if none does.
    pub(crate) fn running(&self, id: &MessageId, linger: Duration) -> Option<Follower> {
        let running = self.running.lock();
        running.get(id).map(|turn| Follower::new(turn.clone(), linger))
    }

    /// Sends a message, unless a request of this process follows the turn of its id already, and follows the
    /// turn. [`Follower::sent`] reports whether it was sent.
    pub(crate) fn follow(
        &self,
        agent: &AgentName,
        message: UserMessage,
        id: &MessageId,
        when_abandoned: WhenAbandoned,
    ) -> Follower {
        let mut running = self.running.lock();
        if let Some(turn) = running.get(id) {
            return Follower::new(turn.clone(), when_abandoned.linger);
        }
        let turn = Arc::new(SharedTurn::default());
        let follower = Follower::new(turn.clone(), when_abandoned.linger);
        running.insert(id.clone(), turn.clone());
        let driver = Driver {
            client: self.client.clone(),
            running: self.running.clone(),
            agent: agent.clone(),
            id: id.clone(),
            turn,
            cancels: when_abandoned.cancels,
        };
        let stopped = self.stopped.clone();
        let driving = async move {
            stopped.run_until_cancelled(driver.drive(message)).await;
            driver.turn.end(Err(ReplyError::Closed));
            driver.running.lock().remove(&driver.id);
        };
        // The trace of the first request has the turn.
        tokio::spawn(driving.instrument(Span::current()));
        follower
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("running", &self.running.lock().len()).finish_non_exhaustive()
    }
}

/// Reads the replies of one turn.
struct Driver {
    client: Arc<AgentClient>,
    running: Arc<Running>,
    agent: AgentName,
    id: MessageId,
    turn: Arc<SharedTurn>,
    cancels: AbandonCheck,
}

impl Driver {
    async fn drive(&self, message: UserMessage) {
        let session = message.session_id.clone();
        let sent = self.client.send_with_id(&self.agent, &message, self.id.clone()).await;
        let mut replies = match sent {
            Ok(replies) => replies,
            Err(error) => return self.turn.sent(Err(error)),
        };
        self.turn.sent(Ok(()));
        let mut was_abandoned = false;
        loop {
            let reply = tokio::select! {
                reply = replies.next() => reply,
                () = self.turn.abandoned(), if !was_abandoned => {
                    was_abandoned = true;
                    if (self.cancels)().await && !self.turn.is_followed() {
                        let cancel = UserMessage::cancelling(session.clone());
                        // The final reply comes to the message itself.
                        let cancelled = self.client.send(&self.agent, &cancel).await;
                        debug!(message_id = %self.id, sent = cancelled.is_ok(), "turn without a reader cancelled");
                    }
                    continue;
                }
            };
            match reply {
                Some(Ok(reply)) if reply.is_final => return self.turn.push_last(reply),
                Some(Ok(reply)) => self.turn.push(reply),
                Some(Err(error)) => return self.turn.end(Err(error)),
                None => return,
            }
        }
    }
}
