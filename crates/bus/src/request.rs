//! Request and reply over the bus, correlated by id.

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
    pending::{Pending, PendingGuard, PendingRequest, RequesterStats},
    port::{Bus, ConsumeError, Publication, PublishError, Reconnects, Subscription},
    request_error::RequestError,
    retry::{self, MAX_ATTEMPTS},
    supervision::restart_on_panic,
};

pub use crate::pending::InterimSink;

/// Maximum number of unsettled replies of a process; replies are settled on receipt.
const REPLY_PREFETCH: u16 = 512;

/// Default limit on pending requests.
pub const DEFAULT_MAX_PENDING: usize = 10_000;

/// Default limit on requests in flight on the bus. Further requests wait in the process: a queue on the
/// bus is shared with other callers.
pub const DEFAULT_MAX_IN_FLIGHT: usize = 256;

/// Increment of the delay before each retry.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// A request to send.
pub struct Request {
    /// Routing key to publish to.
    pub key: RoutingKey,
    /// The message. Its correlation id must be set and unique among pending requests; reply-to and
    /// time budget are filled in.
    pub envelope: Envelope,
    /// Time budget of the handler, publishing included.
    pub timeout: Duration,
    /// Additional wait for the reply, so that the handler's own timeout error can still arrive.
    pub grace: Duration,
    /// Receives messages that precede the reply, such as progress.
    pub on_interim: Option<InterimSink>,
    /// Enables retries under the same correlation id, counted in [`Envelope::attempt`]: when no confirm
    /// came, and when the request is still pending after several reconnects. For requests whose
    /// receivers recognize a duplicate.
    pub retry: bool,
    /// Cancelled when the caller gives up: a request that waits for a permit is then not sent.
    pub abandoned: Option<CancellationToken>,
}

/// Sends requests and receives the replies on one queue of its own, which it consumes from the first
/// request on.
pub struct Requester {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    reply_to: RoutingKey,
    pending: Arc<Pending>,
    listener: OnceCell<Listener>,
    max_pending: usize,
    in_flight: Semaphore,
    max_in_flight: usize,
}

struct Listener {
    replies: AbortOnDropHandle<()>,
    /// Set on a bus that can lose its connection.
    reconnect_retries: Option<ReconnectRetries>,
}

struct ReconnectRetries {
    /// Reconnects of the reply consumer.
    reconnects: watch::Receiver<Reconnects>,
    _task: AbortOnDropHandle<()>,
}

impl Requester {
    /// Creates a requester that receives its replies at `address`.
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
            in_flight: Semaphore::new(DEFAULT_MAX_IN_FLIGHT),
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
        }
    }

    /// Sets the limit on requests in flight; at least 1.
    #[must_use]
    pub fn with_max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = requests.clamp(1, Semaphore::MAX_PERMITS);
        self.in_flight = Semaphore::new(self.max_in_flight);
        self
    }

    /// Sets the limit on pending requests.
    #[must_use]
    pub fn with_max_pending(mut self, max_pending: usize) -> Self {
        self.max_pending = max_pending;
        self
    }

    /// Returns the address that replies are sent to.
    #[must_use]
    pub fn address(&self) -> &ReplyAddress {
        &self.address
    }

    /// Returns the bus that requests are sent on.
    #[must_use]
    pub fn bus(&self) -> &Arc<dyn Bus> {
        &self.bus
    }

    /// Returns the number of pending requests.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the age of the oldest pending request; `None` without any.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        self.pending.oldest()
    }

    /// Returns whether replies are consumed; false before the first request.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.listener.get().is_some_and(|listener| !listener.replies.is_finished())
    }

    /// Returns a function that updates the metrics of this requester.
    pub fn gauges(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let requester = self.clone();
        move || {
            gauge!("rockbot_requests_pending").set(requester.pending() as f64);
            let oldest = requester.oldest().unwrap_or_default();
            gauge!("rockbot_requests_oldest_seconds").set(oldest);
            let consumes = requester.is_listening() && requester.bus().is_ready();
            gauge!("rockbot_bus_reply_consumers").set(f64::from(u8::from(consumes)));
            let stats = requester.stats();
            counter!("rockbot_requests_late_replies_total").absolute(stats.late());
            counter!("rockbot_requests_foreign_replies_total").absolute(stats.foreign());
            counter!("rockbot_requests_retries_total").absolute(stats.retries());
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &Arc<RequesterStats> {
        &self.pending.stats
    }

    /// Sends a request and waits for its reply. Messages of broker users that
    /// [may not reply](rockbot_contracts::may_reply_to) to its key are dropped and counted.
    ///
    /// # Errors
    /// See [`RequestError`].
    ///
    /// # Cancellation
    /// Dropping the future removes the pending request: its reply will count as late. The handler is not
    /// notified; send a cancel for that.
    pub fn request(
        &self,
        request: impl Into<Box<Request>>,
    ) -> impl Future<Output = Result<Envelope, RequestError>> + Send {
        self.request_with(request.into(), true)
    }

    /// Sends a request regardless of the limits on pending requests and requests in flight. For health
    /// probes, which matter most when all permits are taken; a bounded number at a time.
    ///
    /// # Errors
    /// See [`RequestError`].
    ///
    /// # Cancellation
    /// As for [`request`](Self::request).
    pub fn request_unbounded(
        &self,
        request: impl Into<Box<Request>>,
    ) -> impl Future<Output = Result<Envelope, RequestError>> + Send {
        self.request_with(request.into(), false)
    }

    /// Many calls wait here at the same time, so the future holds only the receiver of the reply; all
    /// else is boxed and dropped before the wait.
    async fn request_with(
        &self,
        mut request: Box<Request>,
        bounded: bool,
    ) -> Result<Envelope, RequestError> {
        let after = request.timeout;
        let deadline = Instant::now() + after;
        let latest = deadline + request.grace;
        let reply = async {
            if self.listener.get().is_none() {
                let late = |_| ConsumeError::Disconnected { reason: "no reply in time".to_owned() };
                Box::pin(timeout_at(deadline, self.listen())).await.map_err(late)??;
            }
            let id = request.envelope.correlation_id.clone().unwrap_or_default();
            let key = request.key.clone();
            let limit = bounded.then_some(self.max_pending);
            let (guard, reply) = self.pending.open(id, key, request.on_interim.take(), limit)?;
            let permit = if bounded {
                Some(match self.in_flight.try_acquire() {
                    Ok(permit) => permit,
                    Err(_) => {
                        Box::pin(self.permit(after, deadline, request.abandoned.as_ref())).await?
                    }
                })
            } else {
                None
            };
            request.envelope.reply_to = Some(self.reply_to.clone());
            let sent = Box::pin(self.send(request, deadline, &guard));
            let reply = await_reply(sent, reply).await;
            guard.close(reply.is_ok());
            drop(permit);
            reply
        };
        timeout_at(latest, reply).await.unwrap_or(Err(RequestError::TimedOut { after }))
    }

    /// Waits for a permit to send; permits are granted in order.
    async fn permit(
        &self,
        after: Duration,
        deadline: Instant,
        abandoned: Option<&CancellationToken>,
    ) -> Result<SemaphorePermit<'_>, RequestError> {
        let never_sent = RequestError::NeverSent { after, limit: self.max_in_flight };
        let is_abandoned = async {
            match abandoned {
                Some(abandoned) => abandoned.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = is_abandoned => Err(never_sent),
            permit = timeout_at(deadline, self.in_flight.acquire()) => match permit {
                Ok(permit) => permit.map_err(|_| RequestError::Stopped),
                Err(_) => Err(never_sent),
            },
        }
    }

    /// Publishes the request, and keeps it for retries where it may be lost.
    async fn send(
        &self,
        request: Box<Request>,
        deadline: Instant,
        guard: &PendingGuard<'_>,
    ) -> Result<(), PublishError> {
        let reconnect_retries =
            self.listener.get().and_then(|listener| listener.reconnect_retries.as_ref());
        // Read first: the reply queue may be lost while the request is published.
        let reconnects = reconnect_retries.map(|retries| *retries.reconnects.borrow());
        let next = self.publish(request, deadline).await?;
        if let (Some(request), Some(reconnects)) = (next, reconnects) {
            let (scope, log_span) = (trace::Scope::current(), Span::current());
            let Request { key, envelope, abandoned, .. } = *request;
            let request =
                PendingRequest { key, envelope, deadline, abandoned, reconnects, scope, log_span };
            guard.keep(Box::new(request));
        }
        Ok(())
    }

    /// Publishes the request, and retries without a confirm where that is allowed. An unconfirmed
    /// request may have arrived, so waiting for its reply is worthwhile. Returns the request if it may be
    /// retried after reconnects.
    async fn publish(
        &self,
        mut request: Box<Request>,
        deadline: Instant,
    ) -> Result<Option<Box<Request>>, PublishError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (retry, attempt) = (request.retry, request.envelope.attempt);
            let key = request.key.clone();
            let (envelope, next) = if retry && attempt < MAX_ATTEMPTS {
                (request.envelope.clone(), Some(request))
            } else {
                (request.envelope, None)
            };
            let publication = Publication::mandatory(key, envelope.within(left));
            let error = match self.bus.publish(publication.within(left)).await {
                Ok(()) => return Ok(next),
                Err(error @ PublishError::Unconfirmed { .. }) => error,
                Err(error) if attempt > 1 => {
                    debug!(%error, "retry failed; an earlier attempt may have arrived");
                    return Ok(next);
                }
                Err(error) => return Err(error),
            };
            let Some(mut next) = next else {
                return if retry { Ok(None) } else { Err(error) };
            };
            let pause = RETRY_DELAY * attempt;
            if Instant::now() + pause >= deadline {
                return Ok(None);
            }
            tokio::time::sleep(pause).await;
            info!(correlation_id = next.envelope.correlation_id.as_deref(), attempt, %error,
                "publish unconfirmed; retrying request");
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
                let reconnect_retries = consumer.reconnects().map(|reconnects| {
                    let (bus, pending) = (self.bus.clone(), self.pending.clone());
                    let seen = reconnects.clone();
                    let task = tokio::spawn(restart_on_panic("request retries", move || {
                        let (bus, pending) = (bus.clone(), pending.clone());
                        retry::retry_after_reconnects(bus, pending, seen.clone())
                    }));
                    ReconnectRetries { reconnects, _task: AbortOnDropHandle::new(task) }
                });
                let replies = ReplyListener(self.pending.clone());
                let replies = tokio::spawn(async move {
                    while let Some(delivery) = consumer.next().await {
                        replies.0.deliver(delivery.into_envelope());
                    }
                });
                Ok(Listener { replies: AbortOnDropHandle::new(replies), reconnect_retries })
            })
            .await
            .map(drop)
    }
}

/// The task that delivers replies. When it ends, even by a panic, no reply can arrive any longer, so
/// pending and further requests fail at once.
struct ReplyListener(Arc<Pending>);

impl Drop for ReplyListener {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits for the reply while the publish is being confirmed: a reply can overtake the confirm, which is
/// then no longer needed.
async fn await_reply(
    publish: impl Future<Output = Result<(), PublishError>> + Unpin,
    mut reply: oneshot::Receiver<Envelope>,
) -> Result<Envelope, RequestError> {
    tokio::select! {
        biased;
        published = publish => published?,
        reply = &mut reply => return reply.map_err(|_| RequestError::Stopped),
    }
    reply.await.map_err(|_| RequestError::Stopped)
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

    // ADR 0026 limits this size, and that of a delivery in process.
    #[test]
    fn pending_request_stays_small() {
        fn size<A, B, C, F: Future>(_: impl FnOnce(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let size = size::<&'static Requester, _, _, _>(Requester::request_with);
        assert!(size <= 384, "{size} bytes");
    }
}
