//! Messages that arrive while a turn is running.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use rockbot_tools::ToolProfile;

use crate::{
    event::TurnEvent,
    message::{PendingMessage, Rejection},
};

/// Messages for the running turn: the queued ones, and those that the turn has taken in.
///
/// A message that is still queued when the turn ends starts the next turn.
pub(crate) struct SteeringQueue {
    capacity: usize,
    state: Mutex<State>,
}

struct State {
    /// Tool profile of the running turn.
    profile: &'static ToolProfile,
    queued: VecDeque<PendingMessage>,
    joined: Vec<PendingMessage>,
}

impl SteeringQueue {
    pub(crate) fn new(capacity: usize) -> Self {
        let (queued, joined) = (VecDeque::new(), Vec::new());
        Self { capacity, state: Mutex::new(State { profile: ToolProfile::main(), queued, joined }) }
    }

    /// Starts a turn with this profile. It takes in only messages with the same profile.
    pub(crate) fn begin_turn(&self, profile: &'static ToolProfile) {
        self.state().profile = profile;
    }

    /// Queues a message, or rejects it if the queue is full.
    pub(crate) fn push(&self, message: PendingMessage) {
        let mut state = self.state();
        if state.queued.len() + state.joined.len() < self.capacity {
            state.queued.push_back(message);
            return;
        }
        drop(state);
        message.answer(Rejection::Busy.into());
    }

    /// Returns `true` if a message for the running turn is queued.
    pub(crate) fn has_messages(&self) -> bool {
        let state = self.state();
        state.queued.front().is_some_and(|message| state.matches_turn(message))
    }

    /// Takes the queued messages for the running turn and reports [`TurnEvent::Steered`] to their senders.
    /// Stops at the first message with another profile, which keeps the messages in order.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut state = self.state();
        let mut texts = Vec::with_capacity(state.queued.len());
        while state.queued.front().is_some_and(|message| state.matches_turn(message))
            && let Some(mut message) = state.queued.pop_front()
        {
            texts.push(std::mem::take(&mut message.text));
            (message.progress)(TurnEvent::Steered);
            state.joined.push(message);
        }
        texts
    }

    /// Records the cancel of the turn. The answer of the turn goes to all queued messages.
    pub(crate) fn cancel_all(&self, message: PendingMessage) {
        let mut state = self.state();
        let queued = std::mem::take(&mut state.queued);
        state.joined.extend(queued);
        state.joined.push(message);
    }

    /// Returns the messages that the answer of the turn answers, besides the one that started it.
    pub(crate) fn take_joined(&self) -> Vec<PendingMessage> {
        std::mem::take(&mut self.state().joined)
    }

    /// Returns the message that starts the next turn.
    pub(crate) fn pop_next(&self) -> Option<PendingMessage> {
        self.state().queued.pop_front()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn matches_turn(&self, message: &PendingMessage) -> bool {
        message.origin.entry.profile() == self.profile
    }
}
