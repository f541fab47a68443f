//! Messages that arrive while a turn runs.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rockbot_tools::ToolProfile;

use crate::{
    event::TurnEvent,
    message::{Refusal, Said},
};

/// Messages that wait to be taken into the running turn, and those that were.
///
/// One that is still waiting when the turn ends begins the next turn, so that nobody is told of
/// being heard who was not.
pub(crate) struct Waiting {
    most: usize,
    state: Mutex<State>,
}

struct State {
    /// Of the running turn.
    profile: &'static ToolProfile,
    queued: VecDeque<Said>,
    joined: Vec<Said>,
}

impl Waiting {
    pub(crate) fn new(most: usize) -> Self {
        let (queued, joined) = (VecDeque::new(), Vec::new());
        Self { most, state: Mutex::new(State { profile: ToolProfile::main(), queued, joined }) }
    }

    /// A turn of this profile begins. Only messages of the same profile are taken into it.
    pub(crate) fn begin(&self, profile: &'static ToolProfile) {
        self.state().profile = profile;
    }

    /// Queues a message; one too many is answered at once.
    pub(crate) fn offer(&self, said: Said) {
        let mut state = self.state();
        if state.queued.len() + state.joined.len() < self.most {
            state.queued.push_back(said);
            return;
        }
        drop(state);
        said.answer(Refusal::Busy.into());
    }

    /// Whether somebody said something that the turn has not heard.
    pub(crate) fn any(&self) -> bool {
        let state = self.state();
        state.queued.front().is_some_and(|said| state.fits(said))
    }

    /// Takes everything that was said to the turn into it and tells those who said it. What comes
    /// after a message that begins a turn of its own waits with it.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut state = self.state();
        let mut texts = Vec::with_capacity(state.queued.len());
        while state.queued.front().is_some_and(|said| state.fits(said))
            && let Some(mut said) = state.queued.pop_front()
        {
            texts.push(std::mem::take(&mut said.text));
            (said.progress)(TurnEvent::Steered);
            state.joined.push(said);
        }
        texts
    }

    /// `said` cancelled the turn: its answer is for everybody who waits, heard or not.
    pub(crate) fn join_all(&self, said: Said) {
        let mut state = self.state();
        let queued = std::mem::take(&mut state.queued);
        state.joined.extend(queued);
        state.joined.push(said);
    }

    /// Everybody who gets the turn's answer, besides whoever began it.
    pub(crate) fn joined(&self) -> Vec<Said> {
        std::mem::take(&mut self.state().joined)
    }

    /// The message that begins the next turn.
    pub(crate) fn pop(&self) -> Option<Said> {
        self.state().queued.pop_front()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fits(&self, said: &Said) -> bool {
        said.origin.entry.profile() == self.profile
    }
}
