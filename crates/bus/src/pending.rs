//! The open questions of a requester, each with whoever waits for its answer.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::{Envelope, message};
use tokio::{sync::oneshot, time::Instant};
use tracing::{debug, warn};

use crate::{
    again::OpenQuestion,
    request::{InterimSink, RequestError},
};

/// Counts of a requester.
#[derive(Debug, Default)]
pub struct RequesterStats {
    late: AtomicU64,
    interim: AtomicU64,
    retries: AtomicU64,
    answered: AtomicU64,
}

impl RequesterStats {
    /// Answers that nobody waited for: late, foreign, or the second to one question.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Answers that somebody waited for.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Messages that came before an answer.
    pub fn interim(&self) -> u64 {
        self.interim.load(Ordering::Relaxed)
    }

    /// Questions sent once more, because it was not known whether they had arrived, or because they
    /// were still open after several lost connections.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Pending {
    waiting: Mutex<HashMap<Arc<str>, Waiter>>,
    /// How many there have been, by which they are numbered.
    opened: AtomicU64,
    pub(crate) stats: Arc<RequesterStats>,
}

struct Waiter {
    /// Its question's own: the id is the next one's as soon as this one is answered, which may be
    /// before its asker knows.
    number: u64,
    since: Instant,
    answer: oneshot::Sender<Envelope>,
    on_interim: Option<InterimSink>,
    /// Once the question is with the bus, where it may be asked again.
    question: Option<Box<OpenQuestion>>,
}

impl Pending {
    /// Opens a question: where its answer arrives, and what keeps it open.
    pub(crate) fn open(
        &self,
        id: Arc<str>,
        on_interim: Option<InterimSink>,
        limit: Option<usize>,
    ) -> Result<(Ticket<'_>, oneshot::Receiver<Envelope>), RequestError> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.lock();
        let open = waiting.len();
        let place = match waiting.entry(id.clone()) {
            Entry::Vacant(place) if !id.is_empty() => place,
            _ => return Err(RequestError::BadCorrelationId { id: id.as_ref().to_owned() }),
        };
        if let Some(limit) = limit.filter(|limit| open >= *limit) {
            return Err(RequestError::TooManyPending { limit });
        }
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        place.insert(Waiter { number, since: Instant::now(), answer, on_interim, question: None });
        Ok((Ticket { pending: self, id, number, is_closed: false }, answered))
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How long the oldest has been open.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.lock().values().map(|waiter| waiter.since.elapsed()).max()
    }

    /// Closes all of them, unanswered.
    pub(crate) fn close_all(&self) {
        self.lock().clear();
    }

    /// The ids of the open questions that are like that.
    pub(crate) fn open_questions(&self, like: impl Fn(&OpenQuestion) -> bool) -> Vec<Arc<str>> {
        let waiting = self.lock();
        let questions = waiting
            .iter()
            .filter(|(_, waiter)| waiter.question.as_ref().is_some_and(|question| like(question)));
        questions.map(|(id, _)| id.clone()).collect()
    }

    /// Looks at an open question; `None` when it is open no more.
    pub(crate) fn with_open_question<T>(
        &self,
        id: &str,
        look: impl FnOnce(&mut OpenQuestion) -> T,
    ) -> Option<T> {
        self.lock().get_mut(id)?.question.as_deref_mut().map(look)
    }

    /// Brings what arrived to whoever waits for it.
    pub(crate) fn take(&self, envelope: Envelope) {
        let id = envelope.correlation_id.as_deref().unwrap_or_default();
        if message::is_interim(envelope.message_type()) {
            // Called outside the lock: it is the asker's code.
            let on_interim = self.lock().get(id).map(|waiter| waiter.on_interim.clone());
            match on_interim {
                Some(on_interim) => {
                    self.stats.interim.fetch_add(1, Ordering::Relaxed);
                    if let Some(on_interim) = on_interim {
                        on_interim(&envelope);
                    }
                }
                None => debug!(correlation_id = id, "progress of a call that nobody waits for"),
            }
            return;
        }
        let waiter = self.lock().remove(id);
        let unwanted = match waiter {
            Some(waiter) => {
                self.stats.answered.fetch_add(1, Ordering::Relaxed);
                waiter.answer.send(envelope).err()
            }
            None => Some(envelope),
        };
        if let Some(envelope) = unwanted {
            self.stats.late.fetch_add(1, Ordering::Relaxed);
            warn!(
                correlation_id = envelope.correlation_id.as_deref(),
                r#type = envelope.message_type(),
                "dropped an answer that nobody waits for"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the question when its asker goes away, for whatever reason.
pub(crate) struct Ticket<'a> {
    pending: &'a Pending,
    id: Arc<str>,
    number: u64,
    is_closed: bool,
}

impl Ticket<'_> {
    /// Keeps the question, which may be asked again, until it is answered.
    pub(crate) fn keep(&self, question: Box<OpenQuestion>) {
        let mut waiting = self.pending.lock();
        let waiter = waiting.get_mut(&self.id).filter(|waiter| waiter.number == self.number);
        if let Some(waiter) = waiter {
            waiter.question = Some(question);
        }
    }

    /// An answered question is closed already: nothing is left to look for.
    pub(crate) fn close(mut self, answered: bool) {
        self.is_closed = answered;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let mut waiting = self.pending.lock();
        if waiting.get(&self.id).is_some_and(|waiter| waiter.number == self.number) {
            waiting.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{RoutingKey, trace};
    use tracing::Span;

    use super::*;

    fn question() -> Box<OpenQuestion> {
        Box::new(OpenQuestion {
            key: RoutingKey::new("tool.invoke").expect("a key"),
            envelope: Envelope::raw("Any", Vec::new()),
            deadline: Instant::now(),
            give_up: None,
            losses: 0,
            scope: trace::Scope::default(),
            log_span: Span::none(),
        })
    }

    #[test]
    fn an_answered_question_has_no_say_about_the_next_one_of_its_id() {
        let (pending, id) = (Pending::default(), Arc::<str>::from("q1"));
        let (first, _answer) = pending.open(id.clone(), None, None).expect("open");
        let answer = Envelope::raw("Any", Vec::new()).correlated("q1");
        pending.take(answer);
        let (second, _answer) = pending.open(id, None, None).expect("open");
        first.keep(question());
        assert!(pending.open_questions(|_| true).is_empty(), "kept in another one's place");
        drop(first);
        assert_eq!(pending.len(), 1);
        second.keep(question());
        assert_eq!(pending.open_questions(|_| true).len(), 1);
        drop(second);
        assert_eq!(pending.len(), 0);
    }
}
