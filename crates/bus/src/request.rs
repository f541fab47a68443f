//! Asking over the bus: a correlation id goes out, the answer finds its way to whoever waits.

use std::{fmt, sync::Arc, time::Duration};

use metrics::{counter, gauge};
use rockbot_contracts::{Envelope, RoutingKey, topology::ReplyAddress, trace};
use tokio::{
    sync::{OnceCell, Semaphore, SemaphorePermit, oneshot, watch},
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{Span, debug, info};

use crate::{
    again::{self, OpenQuestion},
    pending::{Pending, RequesterStats, Ticket},
    port::{Bus, ConsumeError, Publication, PublishError, Subscription},
};

/// Unsettled answers that a process may hold at once; answers are settled as they arrive.
const REPLY_PREFETCH: u16 = 512;

/// Questions that may be open at once by default.
pub const DEFAULT_MAX_PENDING: usize = 10_000;

/// Questions that may be out on the bus at once by default. The others wait here, where they are
/// in nobody's way: a queue on the bus is shared with other askers.
pub const DEFAULT_WINDOW: usize = 256;

/// How often a question is sent at most, when each time it may not have arrived.
pub(crate) const MOST_ASKED: u32 = 8;
/// The pause before it is sent again grows by this much each time.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Takes what arrives before an answer. Must not block.
pub type InterimSink = Arc<dyn Fn(&Envelope) + Send + Sync>;

/// A question on its way out.
pub struct Request {
    /// Where it goes.
    pub key: RoutingKey,
    /// What it asks. Its correlation id must be set and unique among open questions; reply-to and
    /// time budget are filled in.
    pub envelope: Envelope,
    /// How long whoever works on it has, publishing included.
    pub timeout: Duration,
    /// How much longer to wait for the answer, so that the worker's own word on a time-out can
    /// still arrive.
    pub grace: Duration,
    /// Takes what arrives before the answer, such as progress.
    pub on_interim: Option<InterimSink>,
    /// Whether to send it again, under the same correlation id and counted in
    /// [`Envelope::asked`], when nobody knows whether it arrived, and when it is still open after
    /// several lost connections. For questions whose receivers recognise the second of two.
    pub ask_again: bool,
    /// Cancelled when the asker gives up: a question that waits for its turn is then not sent.
    pub give_up: Option<CancellationToken>,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The question did not go out, or nobody knows whether it did.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The queue for answers can't be consumed, so nothing was asked.
    #[error("cannot receive answers: {0}")]
    Subscribe(#[from] ConsumeError),
    /// No answer came in time. The question may still be worked on.
    #[error("no answer within {after:?}")]
    TimedOut {
        /// How long the worker had.
        after: Duration,
    },
    /// Too many questions were out until its time was over or its asker gave up, so this one was
    /// never sent.
    #[error("never sent, with {after:?} to do so: {window} questions are out already")]
    NeverSent {
        /// How long it waited.
        after: Duration,
        /// How many may be out at once.
        window: usize,
    },
    /// Another open question has this correlation id, or the envelope has none.
    #[error("correlation id {id:?} is missing or in use")]
    BadCorrelationId {
        /// The id.
        id: String,
    },
    /// Too many questions are open.
    #[error("{limit} calls are waiting for an answer already")]
    TooManyPending {
        /// The limit in force.
        limit: usize,
    },
    /// The requester stopped before an answer came.
    #[error("stopped before an answer came")]
    Stopped,
}

/// Asks, and waits for answers on one queue of its own, which it subscribes once, on the first
/// question.
pub struct Requester {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    reply_to: RoutingKey,
    pending: Arc<Pending>,
    listener: OnceCell<Listener>,
    max_pending: usize,
    window: Semaphore,
    window_size: usize,
}

struct Listener {
    answers: AbortOnDropHandle<()>,
    /// On a bus that can lose its connection.
    asks_again: Option<AsksAgain>,
}

struct AsksAgain {
    /// How often answers were out of reach.
    losses: watch::Receiver<u64>,
    _task: AbortOnDropHandle<()>,
}

impl Requester {
    /// A requester that takes its answers at `address`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, address: ReplyAddress) -> Self {
        let reply_to = address.reply_to();
        Self {
            bus,
            address,
            reply_to,
            pending: Arc::default(),
            listener: OnceCell::new(),
            max_pending: DEFAULT_MAX_PENDING,
            window: Semaphore::new(DEFAULT_WINDOW),
            window_size: DEFAULT_WINDOW,
        }
    }

    /// The same with another bound on questions that are out at once; at least 1.
    #[must_use]
    pub fn with_window(mut self, questions: usize) -> Self {
        self.window_size = questions.clamp(1, Semaphore::MAX_PERMITS);
        self.window = Semaphore::new(self.window_size);
        self
    }

    /// The same with another bound on open questions.
    #[must_use]
    pub fn with_max_pending(mut self, max_pending: usize) -> Self {
        self.max_pending = max_pending;
        self
    }

    /// Where the answers go.
    #[must_use]
    pub fn address(&self) -> &ReplyAddress {
        &self.address
    }

    /// The bus it asks on.
    #[must_use]
    pub fn bus(&self) -> &Arc<dyn Bus> {
        &self.bus
    }

    /// How many questions are open.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How long the oldest open question has been open; `None` without any.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        self.pending.oldest()
    }

    /// Whether it listens for answers; it does not before its first question.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.listener.get().is_some_and(|listener| !listener.answers.is_finished())
    }

    /// Sets the metrics that say how its questions are, whenever it is called.
    pub fn gauges(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let requester = self.clone();
        move || {
            gauge!("rockbot_requests_pending").set(requester.pending() as f64);
            let oldest = requester.oldest().unwrap_or_default();
            gauge!("rockbot_requests_oldest_seconds").set(oldest);
            let hears = requester.is_listening() && requester.bus().is_ready();
            let listens = f64::from(u8::from(hears));
            gauge!("rockbot_bus_reply_consumers").set(listens);
            let stats = requester.stats();
            counter!("rockbot_requests_late_replies_total").absolute(stats.late());
            counter!("rockbot_requests_retries_total").absolute(stats.retries());
        }
    }

    /// Its counts.
    #[must_use]
    pub fn stats(&self) -> &Arc<RequesterStats> {
        &self.pending.stats
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// See [`RequestError`].
    ///
    /// # Cancellation
    /// Dropping the future closes the question: its answer will count as late. Whoever works on it
    /// is not told; send a cancel for that.
    pub fn ask(
        &self,
        request: impl Into<Box<Request>>,
    ) -> impl Future<Output = Result<Envelope, RequestError>> + Send {
        self.ask_with(request.into(), true)
    }

    /// The same beside the bounds on questions that are out and open, for a process that asks how it
    /// is: it wants to know just when all places are taken. One at a time.
    ///
    /// # Errors
    /// See [`RequestError`].
    ///
    /// # Cancellation
    /// As with [`ask`](Self::ask).
    pub fn ask_out_of_turn(
        &self,
        request: impl Into<Box<Request>>,
    ) -> impl Future<Output = Result<Envelope, RequestError>> + Send {
        self.ask_with(request.into(), false)
    }

    /// Many calls wait in here at once, so it holds only what takes their answers; all else is in
    /// boxes, which are gone by then.
    async fn ask_with(
        &self,
        mut request: Box<Request>,
        in_turn: bool,
    ) -> Result<Envelope, RequestError> {
        let after = request.timeout;
        let deadline = Instant::now() + after;
        let latest = deadline + request.grace;
        let asked = async {
            if self.listener.get().is_none() {
                let late =
                    |_| ConsumeError::Disconnected { reason: "no answer in time".to_owned() };
                Box::pin(timeout_at(deadline, self.listen())).await.map_err(late)??;
            }
            let id = request.envelope.correlation_id.clone().unwrap_or_default();
            let limit = in_turn.then_some(self.max_pending);
            let (ticket, answer) = self.pending.open(id, request.on_interim.take(), limit)?;
            let turn = match in_turn {
                true => Some(match self.window.try_acquire() {
                    Ok(turn) => turn,
                    Err(_) => {
                        Box::pin(self.turn(after, deadline, request.give_up.as_ref())).await?
                    }
                }),
                false => None,
            };
            request.envelope.reply_to = Some(self.reply_to.clone());
            let sent = Box::pin(self.send(request, deadline, &ticket));
            let answer = answered(sent, answer).await;
            ticket.close(answer.is_ok());
            drop(turn);
            answer
        };
        timeout_at(latest, asked).await.unwrap_or(Err(RequestError::TimedOut { after }))
    }

    /// Waits for a place among the questions that are out; they get it in order.
    async fn turn(
        &self,
        after: Duration,
        deadline: Instant,
        give_up: Option<&CancellationToken>,
    ) -> Result<SemaphorePermit<'_>, RequestError> {
        let never_sent = RequestError::NeverSent { after, window: self.window_size };
        let given_up = async {
            match give_up {
                Some(give_up) => give_up.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = given_up => Err(never_sent),
            turn = timeout_at(deadline, self.window.acquire()) => match turn {
                Ok(turn) => turn.map_err(|_| RequestError::Stopped),
                Err(_) => Err(never_sent),
            },
        }
    }

    /// Brings the question to the bus, and keeps it where it may be lost there.
    async fn send(
        &self,
        request: Box<Request>,
        deadline: Instant,
        ticket: &Ticket<'_>,
    ) -> Result<(), PublishError> {
        let next = self.publish(request, deadline).await?;
        let asks_again = self.listener.get().and_then(|listener| listener.asks_again.as_ref());
        if let (Some(request), Some(asks_again)) = (next, asks_again) {
            let losses = *asks_again.losses.borrow();
            let (scope, log_span) = (trace::Scope::current(), Span::current());
            let Request { key, envelope, give_up, .. } = *request;
            let question =
                OpenQuestion { key, envelope, deadline, give_up, losses, scope, log_span };
            ticket.keep(Box::new(question));
        }
        Ok(())
    }

    /// Publishes the question, once more where that is allowed and nobody knows whether it
    /// arrived. While nobody knows, it is worth waiting for an answer. Returns the question where
    /// it may be asked again.
    async fn publish(
        &self,
        mut request: Box<Request>,
        deadline: Instant,
    ) -> Result<Option<Box<Request>>, PublishError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (ask_again, asked) = (request.ask_again, request.envelope.attempt);
            let key = request.key.clone();
            let (envelope, next) = match ask_again && asked < MOST_ASKED {
                true => (request.envelope.clone(), Some(request)),
                false => (request.envelope, None),
            };
            let publication = Publication::mandatory(key, envelope.within(left));
            let error = match self.bus.publish(publication.within(left)).await {
                Ok(()) => return Ok(next),
                Err(error @ PublishError::Unconfirmed { .. }) => error,
                Err(error) if asked > 1 => {
                    debug!(%error, "asking again failed; an earlier question may have arrived");
                    return Ok(next);
                }
                Err(error) => return Err(error),
            };
            let Some(mut next) = next else {
                return if ask_again { Ok(None) } else { Err(error) };
            };
            let pause = ASK_AGAIN_AFTER * asked;
            if Instant::now() + pause >= deadline {
                return Ok(None);
            }
            tokio::time::sleep(pause).await;
            info!(correlation_id = next.envelope.correlation_id.as_deref(), asked, %error,
                "asking again under the same id");
            self.pending.stats.count_retry();
            next.envelope = next.envelope.next_attempt();
            request = next;
        }
    }

    async fn listen(&self) -> Result<(), ConsumeError> {
        self.listener
            .get_or_try_init(async || {
                let subscription = Subscription::on_receipt(self.address.queue(), REPLY_PREFETCH);
                let mut consumer = self.bus.consume(subscription).await?;
                let asks_again = consumer.resumptions().map(|resumptions| {
                    let (bus, pending) = (self.bus.clone(), self.pending.clone());
                    let losses = resumptions.clone();
                    let task = tokio::spawn(again::after_losses(bus, pending, resumptions));
                    AsksAgain { losses, _task: AbortOnDropHandle::new(task) }
                });
                let pending = self.pending.clone();
                let answers = tokio::spawn(async move {
                    while let Some(delivery) = consumer.next().await {
                        pending.take(delivery.into_envelope());
                    }
                    // Nobody will answer any more: whoever waits is told at once.
                    pending.close_all();
                });
                Ok(Listener { answers: AbortOnDropHandle::new(answers), asks_again })
            })
            .await
            .map(drop)
    }
}

/// Waits for the answer while the publish is being confirmed: an answer can overtake the confirm,
/// and then nobody needs it any more.
async fn answered(
    publish: impl Future<Output = Result<(), PublishError>> + Unpin,
    mut answer: oneshot::Receiver<Envelope>,
) -> Result<Envelope, RequestError> {
    tokio::select! {
        biased;
        published = publish => published?,
        answer = &mut answer => return answer.map_err(|_| RequestError::Stopped),
    }
    answer.await.map_err(|_| RequestError::Stopped)
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requester")
            .field("address", &self.address)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // By what ADR 0026 says; so does the test of a delivery that is worked on.
    #[test]
    fn a_question_that_waits_keeps_little() {
        fn size<A, B, C, F: Future>(_: impl FnOnce(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let size = size::<&'static Requester, _, _, _>(Requester::ask_with);
        assert!(size <= 384, "{size} bytes");
    }
}
