//! Deduplication of redelivered messages: each message is answered once.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{MessageId, RoutingKey};
use tokio_util::sync::CancellationToken;

use crate::{conversation::TextDigest, event::TurnAnswer};

/// Maximum number of finished messages that are remembered.
const MAX_REMEMBERED: usize = 1024;

/// A message and its reply address. Different senders may use the same message id.
type Key = (MessageId, RoutingKey);

/// State of a message at its delivery.
pub(crate) enum Admission {
    /// The message is new.
    New(ProcessingGuard),
    /// The turn ran in this process, but its answer could not be published.
    Unsent(ProcessingGuard, TurnAnswer),
    /// The message has been answered or rejected.
    Answered,
    /// An earlier message with the same id and reply address has another text.
    OtherText,
}

/// State of the message of a resumed turn.
pub(crate) enum ResumedMessage {
    /// Nothing processes it.
    Free(ProcessingGuard),
    /// Its delivery is being processed.
    Running,
    /// Its answer was published.
    Answered,
}

/// A message with the digest of its text.
struct Known {
    text: TextDigest,
    state: State,
}

enum State {
    Running(CancellationToken),
    Unsent(TurnAnswer),
    Answered,
    /// A redelivery is not processed. A message with another text may have the id.
    Rejected,
}

impl State {
    fn is_rejection(&self) -> bool {
        match self {
            Self::Unsent(answer) => answer.is_rejection,
            Self::Rejected => true,
            Self::Running(_) | Self::Answered => false,
        }
    }
}

#[derive(Default)]
struct Messages {
    states: HashMap<Key, Known>,
    /// Finished messages, oldest first.
    finished: VecDeque<Key>,
}

/// The messages that this process is processing or has recently finished.
#[derive(Default)]
pub(crate) struct Deduplicator {
    messages: Mutex<Messages>,
}

impl Deduplicator {
    /// Admits a delivery. Waits while the message is being processed: the broker redelivers a message after
    /// a disconnect, while its turn continues. A message that was answered before is new unless `is_copy`:
    /// its sender asks for the answer again. One with another text than the first is not admitted, unless the
    /// first was rejected.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        id: &MessageId,
        reply_to: &RoutingKey,
        text: TextDigest,
        mut is_copy: bool,
    ) -> Admission {
        let key = (id.clone(), reply_to.clone());
        loop {
            let running = {
                let mut messages = self.messages();
                let known = messages.states.get(&key);
                if known.is_some_and(|known| known.text != text && !known.state.is_rejection()) {
                    return Admission::OtherText;
                }
                match known.filter(|known| known.text == text).map(|known| &known.state) {
                    Some(State::Answered | State::Rejected) if is_copy => {
                        return Admission::Answered;
                    }
                    Some(State::Running(ended)) => ended.clone(),
                    Some(State::Unsent(answer)) => {
                        let answer = answer.clone();
                        return Admission::Unsent(self.open(&mut messages, key, text), answer);
                    }
                    Some(State::Answered | State::Rejected) | None => {
                        return Admission::New(self.open(&mut messages, key, text));
                    }
                }
            };
            running.cancelled().await;
            // Its answer was published after this delivery arrived.
            is_copy = true;
        }
    }

    /// Returns whether this process is processing or has recently finished a message.
    pub(crate) fn knows(&self, id: &MessageId, reply_to: &RoutingKey) -> bool {
        self.messages().states.contains_key(&(id.clone(), reply_to.clone()))
    }

    /// Starts to process the message of a resumed turn, which was not delivered. The answer of the turn
    /// replaces one that could not be published.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &MessageId,
        reply_to: &RoutingKey,
        text: TextDigest,
    ) -> ResumedMessage {
        let key = (id.clone(), reply_to.clone());
        let mut messages = self.messages();
        let known = messages.states.get(&key);
        match known.map(|known| (&known.state, known.text == text)) {
            Some((State::Running(_), _)) => ResumedMessage::Running,
            Some((State::Answered, true)) => ResumedMessage::Answered,
            Some((State::Answered, false) | (State::Unsent(_) | State::Rejected, _)) | None => {
                ResumedMessage::Free(self.open(&mut messages, key, text))
            }
        }
    }

    fn open(
        self: &Arc<Self>,
        messages: &mut Messages,
        key: Key,
        text: TextDigest,
    ) -> ProcessingGuard {
        messages.finished.retain(|finished| *finished != key);
        let ended = CancellationToken::new();
        let state = State::Running(ended.clone());
        messages.states.insert(key.clone(), Known { text, state });
        ProcessingGuard { dedup: self.clone(), key, text, ended, outcome: None }
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock()
    }
}

/// The processing of one message. A guard that is dropped without an outcome removes the message.
pub(crate) struct ProcessingGuard {
    dedup: Arc<Deduplicator>,
    key: Key,
    text: TextDigest,
    ended: CancellationToken,
    outcome: Option<State>,
}

impl ProcessingGuard {
    /// Records that the answer was published or cannot be delivered.
    pub(crate) fn answered(mut self) {
        self.outcome = Some(State::Answered);
    }

    /// Records that the message was rejected.
    pub(crate) fn rejected(mut self) {
        self.outcome = Some(State::Rejected);
    }

    /// Keeps an answer that could not be published for the next delivery.
    pub(crate) fn unsent(mut self, answer: TurnAnswer) {
        self.outcome = Some(State::Unsent(answer));
    }
}

impl Drop for ProcessingGuard {
    fn drop(&mut self) {
        let mut messages = self.dedup.messages();
        match self.outcome.take() {
            None => {
                messages.states.remove(&self.key);
            }
            Some(state) => {
                let known = Known { text: self.text, state };
                messages.states.insert(self.key.clone(), known);
                messages.finished.push_back(self.key.clone());
                if messages.finished.len() > MAX_REMEMBERED
                    && let Some(oldest) = messages.finished.pop_front()
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

    fn text(text: &str) -> TextDigest {
        crate::conversation::digest(text)
    }

    async fn open(dedup: &Arc<Deduplicator>, id: &MessageId) -> ProcessingGuard {
        match dedup.admit(id, &key("a"), text("go"), true).await {
            Admission::New(guard) => guard,
            _ => panic!("the message is new"),
        }
    }

    #[tokio::test]
    async fn redelivery_waits_for_running_turn() {
        let (dedup, id) = (Arc::<Deduplicator>::default(), MessageId::generate());
        let guard = open(&dedup, &id).await;
        let reply_to = key("a");
        let mut redelivered = Box::pin(dedup.admit(&id, &reply_to, text("go"), true));
        assert!(redelivered.as_mut().now_or_never().is_none());
        assert!(
            matches!(dedup.admit(&id, &key("b"), text("go"), true).await, Admission::New(_)),
            "another sender"
        );
        guard.answered();
        assert!(matches!(redelivered.await, Admission::Answered));
    }

    #[tokio::test]
    async fn another_text_under_a_known_id_is_not_admitted() {
        let (dedup, id) = (Arc::<Deduplicator>::default(), MessageId::generate());
        let guard = open(&dedup, &id).await;
        let reply_to = key("a");
        for is_copy in [true, false] {
            let other = dedup.admit(&id, &reply_to, text("stop"), is_copy).now_or_never();
            assert!(matches!(other, Some(Admission::OtherText)), "while it runs");
        }
        guard.answered();
        for is_copy in [true, false] {
            let other = dedup.admit(&id, &reply_to, text("stop"), is_copy).await;
            assert!(matches!(other, Admission::OtherText), "after its answer");
        }
        assert!(matches!(dedup.admit(&id, &reply_to, text("go"), true).await, Admission::Answered));
    }

    #[tokio::test]
    async fn id_of_a_rejected_message_is_free_for_another_text() {
        let (dedup, id, reply_to) =
            (Arc::<Deduplicator>::default(), MessageId::generate(), key("a"));
        open(&dedup, &id).await.rejected();
        let copy = dedup.admit(&id, &reply_to, text("go"), true).await;
        assert!(matches!(copy, Admission::Answered), "a redelivery is not processed");
        let Admission::New(guard) = dedup.admit(&id, &reply_to, text("stop"), false).await else {
            panic!("the first message was not accepted");
        };
        guard.answered();
        let other = dedup.admit(&id, &reply_to, text("go"), false).await;
        assert!(matches!(other, Admission::OtherText));
        assert_eq!(dedup.messages().finished.len(), 1);
    }

    #[tokio::test]
    async fn message_sent_again_after_its_answer_is_new() {
        let (dedup, id) = (Arc::<Deduplicator>::default(), MessageId::generate());
        open(&dedup, &id).await.answered();
        assert!(matches!(dedup.admit(&id, &key("a"), text("go"), true).await, Admission::Answered));
        let Admission::New(again) = dedup.admit(&id, &key("a"), text("go"), false).await else {
            panic!("the message is new");
        };
        let reply_to = key("a");
        let mut copy = Box::pin(dedup.admit(&id, &reply_to, text("go"), false));
        assert!(copy.as_mut().now_or_never().is_none());
        again.answered();
        assert!(matches!(copy.await, Admission::Answered), "it arrived before the answer");
        assert_eq!(dedup.messages().finished.len(), 1);
    }

    #[tokio::test]
    async fn resumed_turn_replaces_an_unsent_answer() {
        let (dedup, id) = (Arc::<Deduplicator>::default(), MessageId::generate());
        let answer = TurnAnswer::new(TurnOutcome::Completed, "Done.");
        let guard = open(&dedup, &id).await;
        assert!(matches!(dedup.begin(&id, &key("a"), text("go")), ResumedMessage::Running));
        guard.unsent(answer);
        let ResumedMessage::Free(guard) = dedup.begin(&id, &key("a"), text("go")) else {
            panic!("nothing processes the message");
        };
        guard.answered();
        assert!(matches!(dedup.begin(&id, &key("a"), text("go")), ResumedMessage::Answered));
    }

    #[tokio::test]
    async fn unsent_answer_is_kept() {
        let (dedup, id) = (Arc::<Deduplicator>::default(), MessageId::generate());
        let answer = TurnAnswer::new(TurnOutcome::Completed, "Done.");
        open(&dedup, &id).await.unsent(answer.clone());
        let entry = dedup.admit(&id, &key("a"), text("go"), true).await;
        assert!(matches!(entry, Admission::Unsent(_, kept) if kept == answer));
    }

    #[tokio::test]
    async fn dropped_guard_removes_message_and_memory_is_bounded() {
        let (dedup, id) = (Arc::<Deduplicator>::default(), MessageId::generate());
        drop(open(&dedup, &id).await);
        for _ in 0..MAX_REMEMBERED * 2 {
            open(&dedup, &MessageId::generate()).await.answered();
        }
        open(&dedup, &id).await.answered();
        let messages = dedup.messages();
        assert_eq!(
            (messages.states.len(), messages.finished.len()),
            (MAX_REMEMBERED, MAX_REMEMBERED)
        );
    }
}
