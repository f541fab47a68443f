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

use rockbot_contracts::{Envelope, RoutingKey, tool, trace};
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
    interim: AtomicU64,
    retries: AtomicU64,
    answered: AtomicU64,
}

impl RequesterStats {
    /// Returns the number of replies without a pending request: late, unknown, or a second one.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
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
    since: Instant,
    reply: oneshot::Sender<Envelope>,
    on_interim: Option<InterimSink>,
    /// Set once the request is published, where it may be retried.
    request: Option<Box<PendingRequest>>,
}

impl Pending {
    /// Adds a request. Returns the guard that keeps it pending and the receiver of its reply.
    pub(crate) fn open(
        &self,
        id: Arc<str>,
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

    /// Delivers a received message to the caller that waits for it.
    pub(crate) fn deliver(&self, envelope: Envelope) {
        let id = envelope.correlation_id.as_deref().unwrap_or_default();
        if tool::is_interim(envelope.message_type()) {
            // Called outside the lock: it is the caller's code.
            let on_interim = self.lock().get(id).map(|reply| reply.on_interim.clone());
            match on_interim {
                Some(on_interim) => {
                    self.stats.interim.fetch_add(1, Ordering::Relaxed);
                    if let Some(on_interim) = on_interim
                        && catch_unwind(AssertUnwindSafe(|| on_interim(&envelope))).is_err()
                    {
                        supervision::report_panic("progress");
                    }
                }
                None => debug!(correlation_id = id, "progress without a pending request"),
            }
            return;
        }
        let pending = self.lock().remove(id);
        let undelivered = match pending {
            Some(pending) => {
                self.stats.answered.fetch_add(1, Ordering::Relaxed);
                pending.reply.send(envelope).err()
            }
            None => Some(envelope),
        };
        if let Some(envelope) = undelivered {
            self.stats.late.fetch_add(1, Ordering::Relaxed);
            warn!(
                correlation_id = envelope.correlation_id.as_deref(),
                r#type = envelope.message_type(),
                "reply without a pending request dropped"
            );
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
        let (first, _reply) = pending.open(id.clone(), None, None).expect("open");
        let reply = Envelope::raw("Any", Vec::new()).with_correlation_id("r1");
        pending.deliver(reply);
        let (second, _reply) = pending.open(id, None, None).expect("open");
        first.keep(request());
        assert!(pending.request_ids(|_| true).is_empty(), "attached to another request");
        drop(first);
        assert_eq!(pending.len(), 1);
        second.keep(request());
        assert_eq!(pending.request_ids(|_| true).len(), 1);
        drop(second);
        assert_eq!(pending.len(), 0);
    }
}
