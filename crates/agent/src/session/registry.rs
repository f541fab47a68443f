//! The conversations of an agent.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{MessageId, SessionId};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::Instant,
};

use crate::{
    message::{Inbound, Rejection},
    origin::TurnOrigin,
};

/// Capacity of the channel to a conversation. The conversation drains it immediately; messages wait in the
/// steering queue.
const INBOX_CAPACITY: usize = 16;
/// Recorded cancels, for messages that arrive after a later cancel.
const MAX_CANCELS: usize = 256;

/// A cancel for messages that were sent before it.
#[derive(Debug)]
struct ReceivedCancel {
    session: SessionId,
    id: MessageId,
    /// Sender, as validated by the broker.
    sender: Option<Arc<str>>,
}

/// The channels of the conversations by session id.
#[derive(Debug)]
pub(crate) struct SessionRegistry {
    max_sessions: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inboxes: HashMap<SessionId, Inbox>,
    /// Oldest first.
    cancels: VecDeque<ReceivedCancel>,
    closed: bool,
}

/// The channel to a conversation.
#[derive(Debug)]
struct Inbox {
    sender: mpsc::Sender<Inbound>,
    /// The start of the wait for the next input; `None` while the conversation has something to do.
    idle_since: Option<Instant>,
}

impl SessionRegistry {
    pub(crate) fn new(max_sessions: usize) -> Self {
        Self { max_sessions, state: Mutex::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().inboxes.len()
    }

    /// Rejects all further messages.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Returns `true` if a cancel arrived that was sent after the message.
    pub(super) fn is_cancelled(&self, id: &SessionId, origin: &TurnOrigin) -> bool {
        self.state().is_cancelled(id, origin)
    }

    /// Delivers a message to its conversation. `spawn` starts a conversation that does not exist. It runs
    /// under the lock, so that a concurrent message does not start a second one. A cancel starts one only
    /// if `is_durable`: the log may have an open turn. At the limit of conversations, a new one then ends
    /// the one that is idle for the longest time, which continues from its log later.
    pub(crate) fn deliver(
        &self,
        id: &SessionId,
        inbound: Inbound,
        is_durable: bool,
        spawn: impl FnOnce(mpsc::Receiver<Inbound>, SessionId),
    ) -> Result<(), Rejection> {
        let mut state = self.state();
        if state.closed && matches!(inbound, Inbound::Message(_) | Inbound::Resume(_)) {
            return Err(Rejection::Closed);
        }
        if let Inbound::Cancel(message) = &inbound {
            state.record_cancel(id, &message.origin);
        }
        let inbound = match state.inboxes.get_mut(id) {
            Some(inbox) => match inbox.sender.try_send(inbound) {
                Ok(()) => {
                    inbox.idle_since = None;
                    return Ok(());
                }
                Err(TrySendError::Full(_)) => return Err(Rejection::Busy),
                // The task panicked; start the conversation again.
                Err(TrySendError::Closed(inbound)) => inbound,
            },
            None => inbound,
        };
        if matches!(inbound, Inbound::Cancel(_)) && (!is_durable || state.closed) {
            return Err(Rejection::NoRunningTurn);
        }
        if state.inboxes.len() >= self.max_sessions {
            state.inboxes.retain(|_, inbox| !inbox.sender.is_closed());
        }
        if state.inboxes.len() >= self.max_sessions && is_durable {
            state.end_idle();
        }
        if state.inboxes.len() >= self.max_sessions && !state.inboxes.contains_key(id) {
            return Err(Rejection::Full);
        }
        let (sender, receiver) = mpsc::channel(INBOX_CAPACITY);
        // Cannot fail: the channel is new.
        let _ = sender.try_send(inbound);
        state.inboxes.insert(id.clone(), Inbox { sender, idle_since: None });
        spawn(receiver, id.clone());
        Ok(())
    }

    /// Reports to a conversation that another process runs it. If its channel is full, it notices at its
    /// next append.
    pub(crate) fn lose(&self, id: &SessionId) {
        if let Some(inbox) = self.state().inboxes.get(id) {
            let _ = inbox.sender.try_send(Inbound::Lost);
        }
    }

    /// Notes that a conversation waits for its next input, unless a message is in its channel.
    pub(super) fn set_idle(&self, id: &SessionId, inbox: &mpsc::Receiver<Inbound>) {
        let mut state = self.state();
        if inbox.is_empty()
            && let Some(inbox) = state.inboxes.get_mut(id)
        {
            inbox.idle_since = Some(Instant::now());
        }
    }

    /// Removes a conversation, unless a message is in its channel. Returns `true` if it was removed.
    pub(super) fn try_remove(&self, id: &SessionId, inbox: &mpsc::Receiver<Inbound>) -> bool {
        let mut state = self.state();
        if !inbox.is_empty() {
            return false;
        }
        state.inboxes.remove(id);
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Ends the conversation that is idle for the longest time, if there is one: its channel is closed.
    fn end_idle(&mut self) {
        let idle = self.inboxes.iter().filter_map(|(id, inbox)| Some((inbox.idle_since?, id)));
        if let Some((_, id)) = idle.min_by_key(|(since, _)| *since) {
            let id = id.clone();
            self.inboxes.remove(&id);
        }
    }

    /// Returns `true` if a later cancel of the same user was received. The broker delivers in order, but the
    /// deliveries are processed concurrently.
    fn is_cancelled(&self, id: &SessionId, origin: &TurnOrigin) -> bool {
        let Some(message) = &origin.message else { return false };
        self.cancels.iter().any(|cancel| {
            cancel.session == *id
                && cancel.id.as_str() > message.as_str()
                && cancel.sender == origin.sender
        })
    }

    fn record_cancel(&mut self, session: &SessionId, origin: &TurnOrigin) {
        let Some(id) = origin.message.clone() else { return };
        if self.cancels.len() >= MAX_CANCELS {
            self.cancels.pop_front();
        }
        let (session, sender) = (session.clone(), origin.sender.clone());
        self.cancels.push_back(ReceivedCancel { session, id, sender });
    }
}
