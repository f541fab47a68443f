//! Which messages are being answered, so that a message that comes twice is answered once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rockbot_contracts::{MessageId, RoutingKey};
use tokio_util::sync::CancellationToken;

use crate::event::TurnAnswer;

/// Messages whose end is remembered.
const REMEMBERED: usize = 1024;

/// A message and who waits for its answer; two people may choose one id.
type Key = (MessageId, RoutingKey);

/// What is known of a message that comes.
pub(crate) enum Entry {
    /// Nothing: work on it.
    New(Ticket),
    /// Its turn ran here, and its answer could not be sent yet.
    Unsent(Ticket, TurnAnswer),
    /// It was answered.
    Answered,
}

enum State {
    Running(CancellationToken),
    Unsent(TurnAnswer),
    Answered,
}

#[derive(Default)]
struct Messages {
    states: HashMap<Key, State>,
    /// Those that ended, oldest first.
    ended: VecDeque<Key>,
}

/// The messages that this process works on and has worked on lately.
#[derive(Default)]
pub(crate) struct Ledger {
    messages: Mutex<Messages>,
}

impl Ledger {
    /// Enters a message. One that is being worked on is waited for: the bus delivers a message
    /// again when its connection was lost, while the turn goes on.
    pub(crate) async fn enter(self: &Arc<Self>, id: &MessageId, reply_to: &RoutingKey) -> Entry {
        let key = (id.clone(), reply_to.clone());
        loop {
            let running = {
                let mut messages = self.messages();
                match messages.states.get(&key) {
                    Some(State::Answered) => return Entry::Answered,
                    Some(State::Running(ended)) => ended.clone(),
                    Some(State::Unsent(answer)) => {
                        let answer = answer.clone();
                        messages.ended.retain(|ended| *ended != key);
                        return Entry::Unsent(self.open(&mut messages, key), answer);
                    }
                    None => return Entry::New(self.open(&mut messages, key)),
                }
            };
            running.cancelled().await;
        }
    }

    fn open(self: &Arc<Self>, messages: &mut Messages, key: Key) -> Ticket {
        let ended = CancellationToken::new();
        messages.states.insert(key.clone(), State::Running(ended.clone()));
        Ticket { ledger: self.clone(), key, ended, end: None }
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work on one message. Dropped without an end, the message counts as never seen.
pub(crate) struct Ticket {
    ledger: Arc<Ledger>,
    key: Key,
    ended: CancellationToken,
    end: Option<State>,
}

impl Ticket {
    /// Its answer arrived, or nobody waits for it any more.
    pub(crate) fn answered(mut self) {
        self.end = Some(State::Answered);
    }

    /// Its answer could not be sent; it is kept for the next delivery.
    pub(crate) fn unsent(mut self, answer: TurnAnswer) {
        self.end = Some(State::Unsent(answer));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut messages = self.ledger.messages();
        match self.end.take() {
            None => {
                messages.states.remove(&self.key);
            }
            Some(end) => {
                messages.states.insert(self.key.clone(), end);
                messages.ended.push_back(self.key.clone());
                if messages.ended.len() > REMEMBERED
                    && let Some(oldest) = messages.ended.pop_front()
                {
                    messages.states.remove(&oldest);
                }
            }
        }
        drop(messages);
        self.ended.cancel();
    }
}
