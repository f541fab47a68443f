//! Pending requests of a requester, by correlation id.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{Envelope, RoutingKey, interim, may_reply_to, trace};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Span, debug, warn};

use crate::{port::Reconnects, request_error::RequestError, supervision};

/// Receives interim messages of a request, such as progress. Must not block.
pub type InterimSink = Arc<dyn Fn(&Envelope) + Send + Sync>;

/// A published request that awaits its reply.
pub(crate) struct PendingRequest {
    pub(crate) key: RoutingKey,
    pub(crate) envelope: Envelope,
    pub(crate) deadline: Instant,
    /// Cancelled when the caller no longer wants the reply.
    pub(crate) abandoned: Option<CancellationToken>,
    /// Reconnects before it was sent.
    pub(crate) reconnects: Reconnects,
    /// The caller's trace context.
    pub(crate) scope: trace::Scope,
    /// The caller's span in log lines.
    pub(crate) log_span: Span,
}

/// Counters of a requester.
#[derive(Debug, Default)]
pub struct RequesterStats {
    late: AtomicU64,
    foreign: AtomicU64,
    interim: AtomicU64,
    retries: AtomicU64,
    answered: AtomicU64,
}

impl RequesterStats {
    /// Returns the number of replies without a pending request: late, unknown, or a second one.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Returns the number of replies and interim messages that were dropped because their sender does not
    /// serve the request.
    pub fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Returns the number of replies that were delivered to their caller.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns the number of interim messages, such as progress.
    pub fn interim(&self) -> u64 {
        self.interim.load(Ordering::Relaxed)
    }

    /// Returns the number of retries of requests that were unconfirmed, or still pending after several
    /// reconnects.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Pending {
    replies: Mutex<HashMap<Arc<str>, PendingReply>>,
    /// Set once no reply can arrive any longer.
    closed: AtomicBool,
    /// Number of the next request.
    next_number: AtomicU64,
    pub(crate) stats: Arc<RequesterStats>,
}

struct PendingReply {
    /// Identifies the request. Once the reply has arrived, a new request may use the correlation id,
    /// possibly before the caller of the first one is resumed.
    number: u64,
    /// Key of the request, whose consumers may reply.
    key: RoutingKey,
    since: Instant,
    reply: oneshot::Sender<Envelope>,
    on_interim: Option<InterimSink>,
    /// Set once the request is published, where it may be retried.
    request: Option<Box<PendingRequest>>,
}

/// Receiver of a message, by its correlation id.
enum Recipient {
    /// The caller, which waits for this reply.
    Reply(oneshot::Sender<Envelope>),
    /// The sink for interim messages, if the caller has one.
    Interim(Option<InterimSink>),
    /// None: the sender does not serve the pending request.
    ForeignSender,
    /// None: no request with this id is pending.
    Unknown,
}

impl Pending {
    /// Adds a request with the routing key `key`. Returns the guard that keeps it pending and the receiver of
    /// its reply.
    pub(crate) fn open(
        &self,
        id: Arc<str>,
        key: RoutingKey,
        on_interim: Option<InterimSink>,
        limit: Option<usize>,
    ) -> Result<(PendingGuard<'_>, oneshot::Receiver<Envelope>), RequestError> {
        let (sender, receiver) = oneshot::channel();
        let mut replies = self.lock();
        if self.closed.load(Ordering::Acquire) {
            return Err(RequestError::Stopped);
        }
        let pending = replies.len();
        let entry = match replies.entry(id.clone()) {
            Entry::Vacant(entry) if !id.is_empty() => entry,
            _ => return Err(RequestError::BadCorrelationId { id: id.as_ref().to_owned() }),
        };
        if let Some(limit) = limit.filter(|limit| pending >= *limit) {
            return Err(RequestError::TooManyPending { limit });
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        entry.insert(PendingReply {
            number,
            key,
            since: Instant::now(),
            reply: sender,
            on_interim,
            request: None,
        });
        Ok((PendingGuard { pending: self, id, number, is_closed: false }, receiver))
    }

    /// Returns the number of pending requests.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns the age of the oldest pending request.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.lock().values().map(|reply| reply.since.elapsed()).max()
    }

    /// Removes all pending requests and refuses further ones; their callers get an error.
    pub(crate) fn close(&self) {
        let mut replies = self.lock();
        self.closed.store(true, Ordering::Release);
        replies.clear();
    }

    /// Returns the correlation ids of the published requests that match.
    pub(crate) fn request_ids(&self, matches: impl Fn(&PendingRequest) -> bool) -> Vec<Arc<str>> {
        let replies = self.lock();
        let requests = replies
            .iter()
            .filter(|(_, reply)| reply.request.as_ref().is_some_and(|request| matches(request)));
        requests.map(|(id, _)| id.clone()).collect()
    }

    /// Runs `f` on a pending request; `None` when it is no longer pending.
    pub(crate) fn with_request<T>(
        &self,
        id: &str,
        f: impl FnOnce(&mut PendingRequest) -> T,
    ) -> Option<T> {
        self.lock().get_mut(id)?.request.as_deref_mut().map(f)
    }

    /// Delivers a received message to the caller that waits for it. Drops one whose sender does not serve
    /// the request, which stays pending: a process that learned a correlation id must not end the call of another.
    pub(crate) fn deliver(&self, envelope: Envelope) {
        let undelivered = match self.recipient(&envelope) {
            Recipient::Reply(reply) => {
                self.stats.answered.fetch_add(1, Ordering::Relaxed);
                reply.send(envelope).err()
            }
            Recipient::Interim(sink) => return self.deliver_interim(sink.as_ref(), &envelope),
            Recipient::ForeignSender => return self.drop_foreign(&envelope),
            Recipient::Unknown => Some(envelope),
        };
        if let Some(envelope) = undelivered {
            if interim::is_interim(envelope.message_type()) {
                let id = envelope.correlation_id.as_deref();
                return debug!(correlation_id = id, "progress without a pending request");
            }
            self.stats.late.fetch_add(1, Ordering::Relaxed);
            warn!(
                correlation_id = envelope.correlation_id.as_deref(),
                r#type = envelope.message_type(),
                "reply without a pending request dropped"
            );
        }
    }

    /// Returns the receiver of a message. A request that gets its reply is no longer pending.
    fn recipient(&self, envelope: &Envelope) -> Recipient {
        let id = envelope.correlation_id.as_deref().unwrap_or_default();
        let mut replies = self.lock();
        let Some(pending) = replies.get(id) else { return Recipient::Unknown };
        if !may_reply_to(&pending.key, envelope.user_id.as_deref()) {
            return Recipient::ForeignSender;
        }
        if interim::is_interim(envelope.message_type()) {
            return Recipient::Interim(pending.on_interim.clone());
        }
        replies.remove(id).map_or(Recipient::Unknown, |pending| Recipient::Reply(pending.reply))
    }

    /// Calls the sink of a request, outside the lock because it is the caller's code.
    fn deliver_interim(&self, on_interim: Option<&InterimSink>, envelope: &Envelope) {
        self.stats.interim.fetch_add(1, Ordering::Relaxed);
        if let Some(on_interim) = on_interim
            && catch_unwind(AssertUnwindSafe(|| on_interim(envelope))).is_err()
        {
            supervision::report_panic("progress");
        }
    }

    /// Counts a message of a foreign sender. Only the first is a warning: its sender decides how many there
    /// are.
    fn drop_foreign(&self, envelope: &Envelope) {
        let (id, user) = (envelope.correlation_id.as_deref(), envelope.user_id.as_deref());
        if self.stats.foreign.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!(
                correlation_id = id,
                user,
                "reply dropped because its user does not serve the request; further ones are counted in \
                 rockbot_requests_foreign_replies_total"
            );
        } else {
            debug!(correlation_id = id, user, "reply of a foreign user dropped");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, PendingReply>> {
        self.replies.lock()
    }
}

/// Removes the request when its caller is dropped.
pub(crate) struct PendingGuard<'a> {
    pending: &'a Pending,
    id: Arc<str>,
    number: u64,
    is_closed: bool,
}

impl PendingGuard<'_> {
    /// Keeps the published request for retries until its reply arrives.
    pub(crate) fn keep(&self, request: Box<PendingRequest>) {
        let mut replies = self.pending.lock();
        let reply = replies.get_mut(&self.id).filter(|reply| reply.number == self.number);
        if let Some(reply) = reply {
            reply.request = Some(request);
        }
    }

    /// Ends the guard. A request with a reply is already removed.
    pub(crate) fn close(mut self, replied: bool) {
        self.is_closed = replied;
    }
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        if self.is_closed {
            return;
        }
        let mut replies = self.pending.lock();
        if replies.get(&self.id).is_some_and(|reply| reply.number == self.number) {
            replies.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::{Message, ToolProgress, identity::UNSIGNED};

    use super::*;

    fn request() -> Box<PendingRequest> {
        Box::new(PendingRequest {
            key: RoutingKey::new("tool.invoke").expect("a key"),
            envelope: Envelope::raw("Any", Vec::new()),
            deadline: Instant::now(),
            abandoned: None,
            reconnects: Reconnects::default(),
            scope: trace::Scope::default(),
            log_span: Span::none(),
        })
    }

    #[test]
    fn completed_request_keeps_next_one_with_its_id() {
        let (pending, id) = (Pending::default(), Arc::<str>::from("r1"));
        let key = || RoutingKey::new("tool.invoke").expect("a key");
        let (first, _reply) = pending.open(id.clone(), key(), None, None).expect("open");
        let reply = Envelope::raw("Any", Vec::new()).with_correlation_id("r1");
        pending.deliver(reply);
        let (second, _reply) = pending.open(id, key(), None, None).expect("open");
        first.keep(request());
        assert!(pending.request_ids(|_| true).is_empty(), "attached to another request");
        drop(first);
        assert_eq!(pending.len(), 1);
        second.keep(request());
        assert_eq!(pending.request_ids(|_| true).len(), 1);
        drop(second);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn message_of_foreign_user_leaves_request_pending() {
        let pending = Pending::default();
        let key = RoutingKey::new("tool.invoke.pool.web").expect("a key");
        let interim = Arc::new(AtomicU64::new(0));
        let count = interim.clone();
        let sink: InterimSink = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let (guard, mut reply) =
            pending.open(Arc::from("r1"), key, Some(sink), None).expect("open");
        let deliver = |kind: &str, user: &str| {
            let mut envelope = Envelope::raw(kind, Vec::new()).with_correlation_id("r1");
            envelope.user_id = Some(user.into());
            pending.deliver(envelope);
        };
        for user in ["rockbot.tool-handler.files", "rockbot.agent.web", UNSIGNED] {
            deliver("ToolInvokeResponse", user);
            deliver(ToolProgress::TYPE, user);
        }
        assert!(reply.try_recv().is_err(), "a foreign reply was delivered");
        assert_eq!((pending.stats.foreign(), pending.stats.answered()), (6, 0));
        assert_eq!((pending.len(), interim.load(Ordering::Relaxed)), (1, 0));
        deliver(ToolProgress::TYPE, "rockbot.tool-handler.web");
        deliver("ToolInvokeResponse", "rockbot.tool-handler.web");
        assert!(reply.try_recv().is_ok());
        assert_eq!((interim.load(Ordering::Relaxed), pending.stats.late()), (1, 0));
        guard.close(true);
    }
}
