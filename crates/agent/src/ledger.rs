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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rockbot_contracts::user::TurnOutcome;

    use super::*;

    fn key(key: &str) -> RoutingKey {
        RoutingKey::new(key).unwrap()
    }

    async fn open(ledger: &Arc<Ledger>, id: &MessageId) -> Ticket {
        match ledger.enter(id, &key("a")).await {
            Entry::New(ticket) => ticket,
            Entry::Unsent(..) | Entry::Answered => panic!("the message is new"),
        }
    }

    #[tokio::test]
    async fn a_message_that_is_worked_on_is_waited_for() {
        let (ledger, id) = (Arc::<Ledger>::default(), MessageId::generate());
        let ticket = open(&ledger, &id).await;
        let reply_to = key("a");
        let mut again = Box::pin(ledger.enter(&id, &reply_to));
        assert!(again.as_mut().now_or_never().is_none());
        assert!(matches!(ledger.enter(&id, &key("b")).await, Entry::New(_)), "somebody else's");
        ticket.answered();
        assert!(matches!(again.await, Entry::Answered));
    }

    #[tokio::test]
    async fn an_answer_that_was_not_sent_is_kept() {
        let (ledger, id) = (Arc::<Ledger>::default(), MessageId::generate());
        let answer = TurnAnswer::new(TurnOutcome::Completed, "Done.");
        open(&ledger, &id).await.unsent(answer.clone());
        let entry = ledger.enter(&id, &key("a")).await;
        assert!(matches!(entry, Entry::Unsent(_, kept) if kept == answer));
    }

    #[tokio::test]
    async fn work_that_was_dropped_leaves_nothing_and_memory_is_bounded() {
        let (ledger, id) = (Arc::<Ledger>::default(), MessageId::generate());
        drop(open(&ledger, &id).await);
        for _ in 0..REMEMBERED * 2 {
            open(&ledger, &MessageId::generate()).await.answered();
        }
        open(&ledger, &id).await.answered();
        let messages = ledger.messages();
        assert_eq!((messages.states.len(), messages.ended.len()), (REMEMBERED, REMEMBERED));
    }
}
