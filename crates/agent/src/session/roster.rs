//! Which conversations there are.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rockbot_contracts::{MessageId, SessionId};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::message::{Inbound, Refusal};

/// Messages on their way to one conversation's task. It passes them on at once, so this is not
/// where messages wait.
const INBOX: usize = 16;
/// Cancels that are remembered, for messages that they overtake.
const MOST_CANCELS: usize = 256;

/// The inboxes of the conversations.
#[derive(Debug)]
pub(crate) struct Roster {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inboxes: HashMap<SessionId, mpsc::Sender<Inbound>>,
    /// Oldest first.
    cancels: VecDeque<(SessionId, MessageId)>,
    closed: bool,
}

impl Roster {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().inboxes.len()
    }

    /// Takes no more messages.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Puts a message into its conversation's inbox, unless a cancel has overtaken it. Where there is
    /// no such conversation, `begin` starts one; it runs under the lock, so that no message can slip
    /// between.
    pub(crate) fn deliver(
        &self,
        id: &SessionId,
        inbound: Inbound,
        begin: impl FnOnce(mpsc::Receiver<Inbound>, SessionId),
    ) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.closed && matches!(inbound, Inbound::Say(_)) {
            return Err(Refusal::Closed);
        }
        match &inbound {
            Inbound::Say(said) if state.is_cancelled(id, said.origin.message.as_ref()) => {
                return Err(Refusal::Cancelled);
            }
            Inbound::Cancel(said) => state.remember_cancel(id, said.origin.message.as_ref()),
            Inbound::Say(_) => {}
        }
        let inbound = match state.inboxes.get(id) {
            Some(inbox) => match inbox.try_send(inbound) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) => return Err(Refusal::Busy),
                // Its task crashed; the conversation begins again.
                Err(TrySendError::Closed(inbound)) => inbound,
            },
            None => inbound,
        };
        if matches!(inbound, Inbound::Cancel(_)) {
            return Err(Refusal::NothingRuns);
        }
        if state.inboxes.len() >= self.most {
            state.inboxes.retain(|_, inbox| !inbox.is_closed());
        }
        if state.inboxes.len() >= self.most && !state.inboxes.contains_key(id) {
            return Err(Refusal::Full);
        }
        let (sender, receiver) = mpsc::channel(INBOX);
        // The channel is empty and its receiver is here.
        let _ = sender.try_send(inbound);
        state.inboxes.insert(id.clone(), sender);
        begin(receiver, id.clone());
        Ok(())
    }

    /// Strikes a conversation off, unless a message is in its inbox. Whether it was.
    pub(super) fn leave(&self, id: &SessionId, inbox: &mpsc::Receiver<Inbound>) -> bool {
        let mut state = self.state();
        if !inbox.is_empty() {
            return false;
        }
        state.inboxes.remove(id);
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a later message has cancelled this one. A queue hands both out in order, to tasks that
    /// are not.
    fn is_cancelled(&self, id: &SessionId, message: Option<&MessageId>) -> bool {
        let Some(message) = message else { return false };
        self.cancels
            .iter()
            .any(|(session, cancel)| session == id && cancel.as_str() > message.as_str())
    }

    fn remember_cancel(&mut self, id: &SessionId, cancel: Option<&MessageId>) {
        let Some(cancel) = cancel else { return };
        if self.cancels.len() >= MOST_CANCELS {
            self.cancels.pop_front();
        }
        self.cancels.push_back((id.clone(), cancel.clone()));
    }
}
