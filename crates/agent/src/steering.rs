//! Messages that arrive while a turn is running.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use rockbot_tools::ToolProfile;

use rockbot_contracts::{MessageId, RoutingKey};

use crate::{
    event::{ProgressSink, TurnAnswer},
    message::{PendingMessage, Rejection},
};

/// Messages for the running turn: the queued ones, and those that the turn has taken in.
///
/// A message that is still queued when the turn ends starts the next turn.
pub(crate) struct SteeringQueue {
    capacity: usize,
    state: Mutex<State>,
}

/// A message that the running turn takes in.
pub(crate) struct SteeringMessage {
    pub(crate) id: MessageId,
    pub(crate) text: String,
    pub(crate) media: Vec<String>,
    pub(crate) reply_to: Option<RoutingKey>,
    pub(crate) progress: ProgressSink,
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

    /// Returns `true` if no message is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().queued.is_empty()
    }

    /// Returns `true` if a message for the running turn is queued.
    pub(crate) fn has_messages(&self) -> bool {
        let state = self.state();
        state.queued.front().is_some_and(|message| state.matches_turn(message))
    }

    /// Takes the queued messages for the running turn, whose answer they get. Stops at the first message
    /// with another profile, which keeps the messages in order.
    pub(crate) fn take(&self) -> Vec<SteeringMessage> {
        let mut state = self.state();
        let mut taken = Vec::with_capacity(state.queued.len());
        while state.queued.front().is_some_and(|message| state.matches_turn(message))
            && let Some(message) = state.queued.pop_front()
        {
            taken.push(SteeringMessage {
                id: message.id.clone(),
                text: message.text.clone(),
                media: message.media.clone(),
                reply_to: message.origin.reply_to.clone(),
                progress: message.progress.clone(),
            });
            state.joined.push(message);
        }
        taken
    }

    /// Adds a message that is already part of the turn: it only gets its answer.
    pub(crate) fn join(&self, message: PendingMessage) {
        self.state().joined.push(message);
    }

    /// Returns `true` if the turn has taken in a message with this id.
    pub(crate) fn has_joined(&self, id: &MessageId) -> bool {
        self.state().joined.iter().any(|message| message.id == *id)
    }

    /// Returns `true` if a message with this id and another text is queued, or the turn has taken one in.
    pub(crate) fn has_other_text(&self, id: &MessageId, text: &str) -> bool {
        let state = self.state();
        let mut known = state.queued.iter().chain(&state.joined);
        known.any(|message| message.id == *id && message.text != text)
    }

    /// Ends all queued messages with this answer.
    pub(crate) fn answer_queued(&self, answer: &TurnAnswer) {
        let queued = std::mem::take(&mut self.state().queued);
        for message in queued {
            message.answer(answer.clone());
        }
    }

    /// Records the cancel of the turn. The answer of the turn goes to all queued messages of users.
    pub(crate) fn cancel_all(&self, message: PendingMessage) {
        let mut state = self.state();
        let queued = std::mem::take(&mut state.queued);
        // Results of ended work are passed on after the cancelled turn.
        let (results, cancelled): (VecDeque<_>, VecDeque<_>) =
            queued.into_iter().partition(|queued| queued.origin.work.is_some());
        state.queued = results;
        state.joined.extend(cancelled);
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
        // Results are read in a turn of their own.
        message.origin.work.is_none() && message.origin.entry.profile() == self.profile
    }
}
