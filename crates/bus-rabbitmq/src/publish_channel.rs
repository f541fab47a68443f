//! A channel to publish on, and the mapping of confirms and returns to results.
//!
//! The client library attaches a returned message to the confirm that it processes next, which may
//! belong to another message of the channel. The publisher of a message therefore accepts a return only
//! if it has the id of that message, and passes any other return to the publisher of its message. On
//! a channel for one routing key, whose messages are all routable or all unroutable, this makes every
//! result correct. Replies to all callers share one channel: there a reply to a caller that is gone may
//! be reported as delivered, if its return reaches the publisher only after its own confirm was processed. The
//! publisher of a reply treats both alike.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use lapin::{
    BasicProperties, Channel, Confirmation, ErrorKind, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use rockbot_bus::{Assurance, Publication, PublishError};
use rockbot_contracts::{Envelope, MessageId, RoutingKey};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    backoff::{self, Waits},
    channel_wait::{WaitError, wait_on_channel},
    codec,
    confirm::PendingConfirm,
    refusal::{self, ReplyCode},
    supervisor::{ConnectionUnavailable, Supervisor},
    topology::Namespace,
    traffic::{MessageInFlight, Traffic},
};

/// Publishes to one exchange on its own channel, which is replaced when it closes.
pub(crate) struct PublishChannel {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    exchange: ShortString,
    assurance: Assurance,
    current: Mutex<Option<Arc<OpenChannel>>>,
    opening: tokio::sync::Mutex<()>,
    foreign_returns: ForeignReturns,
}

/// An open channel on one connection.
struct OpenChannel {
    channel: Channel,
    generation: u64,
    blocked: watch::Receiver<Option<Arc<str>>>,
    traffic: Traffic,
}

/// Outcome of one attempt to publish.
enum Attempt {
    /// The message was sent.
    Settled(Result<(), Undelivered>),
    /// The message was not sent; with the reason.
    NotSent(String),
    /// The broker dropped the message because of its size.
    TooLarge { bytes: usize, limit: usize },
    /// The exchange was deleted with all bindings, so the broker dropped the message; with the reason.
    ExchangeMissing(String),
}

/// Outcome of all attempts. The outer error means that no attempt delivered the message, for a reason
/// other than its routing.
type PublishOutcome = Result<Result<(), Undelivered>, PublishError>;

/// State of the retries of one message.
#[derive(Default)]
struct RetryState {
    waits: Option<Box<Waits>>,
    /// Until when a returned message is retried. Set when the exchange is found missing.
    rebind_deadline: Option<Instant>,
}

/// Time after the detection of a missing exchange during which a message may be unroutable, until its
/// consumers have restored their bindings: two `TOPOLOGY_INTERVAL`s of the supervisor, and a second.
const REBIND_GRACE: Duration = Duration::from_secs(7);

impl RetryState {
    /// Returns the outcome after a failed attempt; `None` after the wait for the next attempt.
    async fn resolve(&mut self, attempt: Attempt, deadline: Instant) -> Option<PublishOutcome> {
        let outcome = match attempt {
            Attempt::Settled(Err(Undelivered::Returned)) if self.may_be_rebound() => {
                Ok(Err(Undelivered::Returned))
            }
            Attempt::Settled(settled) => return Some(Ok(settled)),
            Attempt::TooLarge { bytes, limit } => {
                return Some(Err(PublishError::TooLarge { bytes, limit }));
            }
            Attempt::NotSent(reason) => Err(not_sent(reason)),
            Attempt::ExchangeMissing(reason) => {
                self.rebind_deadline.get_or_insert(Instant::now() + REBIND_GRACE);
                Err(not_sent(reason))
            }
        };
        if self.wait(deadline).await { None } else { Some(outcome) }
    }

    /// Waits for the next delay. Returns `false`, without waiting, when the deadline comes first.
    async fn wait(&mut self, deadline: Instant) -> bool {
        let next = Instant::now()
            + self.waits.get_or_insert_with(|| Box::new(backoff::waits())).next_wait();
        if next >= deadline {
            return false;
        }
        tokio::time::sleep_until(next).await;
        true
    }

    fn may_be_rebound(&self) -> bool {
        self.rebind_deadline.is_some_and(|deadline| Instant::now() < deadline)
    }
}

impl PublishChannel {
    pub(crate) fn new(
        supervisor: Supervisor,
        namespace: Arc<Namespace>,
        exchange: ShortString,
        assurance: Assurance,
    ) -> Self {
        Self {
            supervisor,
            namespace,
            exchange,
            assurance,
            current: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            foreign_returns: ForeignReturns::default(),
        }
    }

    pub(crate) async fn publish(&self, publication: &Publication) -> Result<(), PublishError> {
        let Publication { key, envelope, mandatory, timeout, .. } = publication;
        let routing_key = ShortString::try_new(key.as_str())
            .map_err(|error| PublishError::Unsendable { reason: error.to_string() })?;
        self.send(routing_key, envelope, *mandatory, *timeout).await?.map_err(|error| match error {
            Undelivered::Returned => PublishError::Unroutable { key: key.clone() },
            Undelivered::Nacked => PublishError::Refused { key: key.clone() },
            Undelivered::Unconfirmed(reason) => {
                PublishError::Unconfirmed { key: key.clone(), reason }
            }
        })
    }

    /// Publishes with a routing key outside of the topology, such as the name of a queue.
    pub(crate) async fn publish_raw(
        &self,
        routing_key: ShortString,
        envelope: &Envelope,
    ) -> Result<(), String> {
        match self.send(routing_key, envelope, true, Publication::DEFAULT_TIMEOUT).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(undelivered)) => Err(format!("{undelivered:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends the message. Retries it if it was not sent, if its exchange was missing, and, for
    /// [`REBIND_GRACE`] after that, if it was returned.
    ///
    /// Many calls wait here, so rare paths are boxed to keep the future small.
    async fn send(
        &self,
        routing_key: ShortString,
        envelope: &Envelope,
        mandatory: bool,
        within: Duration,
    ) -> PublishOutcome {
        let deadline = Instant::now() + within;
        let mut retry = RetryState::default();
        loop {
            let open = match self.unblocked_channel() {
                Some(open) => open,
                None => {
                    // Validated first: an invalid message need not wait for a connection.
                    self.properties(envelope)?;
                    Box::pin(self.wait_for_unblocked_channel(deadline)).await?
                }
            };
            let options = BasicPublishOptions { mandatory, immediate: false };
            let published = pin!(open.channel.basic_publish(
                self.exchange.clone(),
                routing_key.clone(),
                options,
                &envelope.body,
                self.properties(envelope)?,
            ));
            let attempt = match self.await_outcome(&open, published, envelope, deadline).await {
                Attempt::Settled(Ok(())) => return Ok(Ok(())),
                failed => failed,
            };
            if matches!(attempt, Attempt::ExchangeMissing(_)) {
                self.supervisor.request_topology_restore();
            }
            if let Some(outcome) = Box::pin(retry.resolve(attempt, deadline)).await {
                return outcome;
            }
        }
    }

    fn properties(&self, envelope: &Envelope) -> Result<BasicProperties, PublishError> {
        let properties = codec::encode(envelope)
            .map_err(|error| PublishError::Unsendable { reason: error.to_string() })?;
        // The broker refuses a message with the user id of another user.
        Ok(properties.with_user_id(self.supervisor.user()))
    }

    /// Waits for the outcome of a message.
    async fn await_outcome(
        &self,
        open: &OpenChannel,
        published: impl Future<Output = lapin::Result<PublisherConfirm>> + Unpin,
        envelope: &Envelope,
        deadline: Instant,
    ) -> Attempt {
        let in_flight = open.traffic.begin();
        let outcome = {
            let confirmed = pin!(async {
                let confirm = published.await?;
                match self.assurance {
                    Assurance::Sent => Ok(Confirmation::NotRequested),
                    Assurance::Confirmed => PendingConfirm::new(confirm).await,
                }
            });
            match wait_on_channel(&open.channel, deadline, confirmed).await {
                Ok(Ok(confirmation)) => self.classify(confirmation, &envelope.message_id),
                Ok(Err(error)) => {
                    return self.after_channel_error(open, &error, envelope, &in_flight);
                }
                Err(error) => return self.after_failed_wait(open, error),
            }
        };
        Attempt::Settled(match outcome {
            Outcome::Settled(settled) => settled,
            Outcome::ForeignReturn { unless_returned } => {
                if Box::pin(self.foreign_returns.claim(&envelope.message_id)).await {
                    Err(Undelivered::Returned)
                } else {
                    unless_returned
                }
            }
        })
    }

    /// Returns the outcome of a message that was not confirmed.
    fn after_failed_wait(&self, open: &OpenChannel, error: WaitError) -> Attempt {
        if error == WaitError::ChannelGone {
            self.forget(open);
        }
        Attempt::Settled(Err(Undelivered::Unconfirmed(error.to_string())))
    }

    /// Returns the outcome of a message after an error of the channel.
    fn after_channel_error(
        &self,
        open: &OpenChannel,
        error: &lapin::Error,
        envelope: &Envelope,
        in_flight: &MessageInFlight<'_>,
    ) -> Attempt {
        self.forget(open);
        // The library checks the channel before it accepts the message.
        if matches!(error.kind(), ErrorKind::InvalidChannelState(_, "basic.publish")) {
            return Attempt::NotSent(error.to_string());
        }
        // The size identifies the dropped message among those in flight.
        if let Some((bytes, limit)) = refusal::oversized(error)
            && bytes == envelope.body.len()
        {
            return Attempt::TooLarge { bytes, limit };
        }
        // The broker drops a message to a missing exchange. Only if no other message was in flight on the
        // channel does the error certainly belong to this one.
        if refusal::reply_code(error) == Some(ReplyCode::NotFound) && in_flight.was_alone() {
            return Attempt::ExchangeMissing(format!("the exchange {} was deleted", self.exchange));
        }
        Attempt::Settled(Err(Undelivered::Unconfirmed(error.to_string())))
    }

    /// Returns the outcome of the message `id` after its confirm.
    fn classify(&self, confirmation: Confirmation, id: &MessageId) -> Outcome {
        let (confirmed, returned) = match confirmation {
            Confirmation::Ack(returned) => (Ok(()), returned),
            Confirmation::Nack(returned) => (Err(Undelivered::Nacked), returned),
            Confirmation::NotRequested => return Outcome::Settled(Ok(())),
        };
        let Some(returned) = returned else {
            let was_returned = self.foreign_returns.take(id);
            return Outcome::Settled(if was_returned {
                Err(Undelivered::Returned)
            } else {
                confirmed
            });
        };
        match returned.delivery.properties.message_id() {
            Some(returned_id) if returned_id.as_str() != id.as_str() => {
                self.foreign_returns.hand_over(returned_id.as_str());
                Outcome::ForeignReturn { unless_returned: confirmed }
            }
            _ => Outcome::Settled(Err(Undelivered::Returned)),
        }
    }

    /// Returns the open channel, unless the broker blocks publishers.
    fn unblocked_channel(&self) -> Option<Arc<OpenChannel>> {
        self.connected_channel().filter(|open| open.blocked.borrow().is_none())
    }

    /// Waits until the broker accepts messages, and returns the open channel, or a new one on the current
    /// connection.
    async fn wait_for_unblocked_channel(
        &self,
        deadline: Instant,
    ) -> Result<Arc<OpenChannel>, PublishError> {
        let mut waits = backoff::waits();
        let mut refused = None;
        let opened = timeout_at(deadline, async {
            loop {
                match self.get_or_open().await {
                    Ok(open) => {
                        // An error means that the connection was lost, which sending will detect.
                        let _ = open.blocked.clone().wait_for(Option::is_none).await;
                        return Ok(open);
                    }
                    Err(ConnectionUnavailable::Closed) => return Err(PublishError::Closed),
                    Err(ConnectionUnavailable::Disconnected { reason }) => refused = Some(reason),
                }
                tokio::time::sleep(waits.next_wait()).await;
            }
        });
        // Also while the broker blocks publishers, which leaves the connection open.
        let opened = self.supervisor.until_closed(opened).await.ok_or(PublishError::Closed)?;
        match opened {
            Ok(opened) => opened,
            Err(_) => Err(not_sent(refused.unwrap_or_else(|| self.supervisor.reason()))),
        }
    }

    async fn get_or_open(&self) -> Result<Arc<OpenChannel>, ConnectionUnavailable> {
        if let Some(open) = self.connected_channel() {
            return Ok(open);
        }
        // One caller opens the channel while the others wait.
        let _turn = self.opening.lock().await;
        match self.connected_channel() {
            Some(open) => Ok(open),
            None => self.open_new().await,
        }
    }

    async fn open_new(&self) -> Result<Arc<OpenChannel>, ConnectionUnavailable> {
        let connection = self.supervisor.connection().await?;
        let disconnected = |reason| ConnectionUnavailable::Disconnected { reason };
        let channel = connection.open_channel().await.map_err(disconnected)?;
        let prepared = async {
            self.namespace.declare_exchanges(&channel).await?;
            if self.assurance == Assurance::Confirmed {
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
            }
            Ok(())
        };
        let prepared = connection.until_lost(prepared).await.map_err(disconnected)?;
        prepared.map_err(|error: lapin::Error| disconnected(refusal::explain(&error)))?;
        let open = Arc::new(OpenChannel {
            channel,
            generation: connection.generation,
            blocked: connection.blocked(),
            traffic: Traffic::default(),
        });
        *self.lock_current() = Some(open.clone());
        Ok(open)
    }

    fn connected_channel(&self) -> Option<Arc<OpenChannel>> {
        self.lock_current().clone().filter(|open| open.channel.status().connected())
    }

    /// Removes a failed channel, so that the next message opens another.
    fn forget(&self, failed: &OpenChannel) {
        let mut current = self.lock_current();
        if current.as_ref().is_some_and(|open| std::ptr::eq(&**open, failed)) {
            tracing::debug!(generation = failed.generation, "publish channel failed");
            *current = None;
        }
    }

    fn lock_current(&self) -> parking_lot::MutexGuard<'_, Option<Arc<OpenChannel>>> {
        self.current.lock()
    }
}

/// Reasons why a sent message did not arrive, or may not have arrived.
#[derive(Debug)]
enum Undelivered {
    Returned,
    Nacked,
    /// The broker did not confirm the message; with the reason.
    Unconfirmed(String),
}

fn not_sent(reason: String) -> PublishError {
    PublishError::Disconnected { reason }
}

/// Outcome of a message after its confirm.
enum Outcome {
    Settled(Result<(), Undelivered>),
    /// The confirm carried the return of another message, so the message's own return may be with another
    /// confirm.
    ForeignReturn {
        /// Outcome if the message was not returned.
        unless_returned: Result<(), Undelivered>,
    },
}

/// Ids of returned messages whose return arrived with the confirm of another message, until their own
/// publisher takes them.
#[derive(Default)]
struct ForeignReturns {
    /// Set while there are ids, so that the common case takes no lock.
    non_empty: AtomicBool,
    ids: Mutex<HashSet<Box<str>>>,
    handed_over: Notify,
}

impl ForeignReturns {
    /// Maximum number of ids; when full, the set is cleared, and messages whose returns were in it count as
    /// delivered.
    const MAX_RETURNS: usize = 1024;

    /// Time limit for the return of a message whose confirm carried a foreign one. Such confirms arrive
    /// together, so their receivers are awake already.
    const CLAIM_TIMEOUT: Duration = Duration::from_millis(500);

    fn hand_over(&self, id: &str) {
        let mut ids = self.ids.lock();
        if ids.len() >= Self::MAX_RETURNS {
            ids.clear();
        }
        ids.insert(id.into());
        self.non_empty.store(true, Ordering::Release);
        drop(ids);
        self.handed_over.notify_waiters();
    }

    fn take(&self, id: &MessageId) -> bool {
        if !self.non_empty.load(Ordering::Acquire) {
            return false;
        }
        let mut ids = self.ids.lock();
        let found = ids.remove(id.as_str());
        self.non_empty.store(!ids.is_empty(), Ordering::Release);
        found
    }

    /// Waits for the return of the message `id`. Returns `false` if it does not arrive in time.
    async fn claim(&self, id: &MessageId) -> bool {
        let claimed = async {
            loop {
                let handed_over = self.handed_over.notified();
                if self.take(id) {
                    return;
                }
                handed_over.await;
            }
        };
        timeout(Self::CLAIM_TIMEOUT, claimed).await.is_ok()
    }
}

/// Returns the key of the publish channel for `key`; `None`: the shared channel. Replies share it, since
/// each caller has its own routing key, and the publisher of a reply does the same whether a caller is gone
/// or not.
pub(crate) fn channel_key(key: &RoutingKey) -> Option<&RoutingKey> {
    use rockbot_contracts::topology::{is_tool_reply, is_user_reply};
    (!is_tool_reply(key) && !is_user_reply(key)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn message_returned_until_deadline_is_unroutable() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut retry = RetryState::default();
        let missing = Attempt::ExchangeMissing("deleted".to_owned());
        assert!(retry.resolve(missing, deadline).await.is_none(), "retried");
        let outcome = loop {
            let returned = Attempt::Settled(Err(Undelivered::Returned));
            if let Some(outcome) = retry.resolve(returned, deadline).await {
                break outcome;
            }
        };
        assert!(matches!(outcome, Ok(Err(Undelivered::Returned))), "{outcome:?}");
    }

    #[tokio::test]
    async fn message_not_sent_until_deadline_is_disconnected() {
        let mut retry = RetryState::default();
        let outcome = retry.resolve(Attempt::NotSent("lost".to_owned()), Instant::now()).await;
        assert!(matches!(outcome, Some(Err(PublishError::Disconnected { .. }))), "{outcome:?}");
    }

    #[tokio::test]
    async fn returned_message_is_not_retried_while_exchange_exists() {
        let mut retry = RetryState::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        let returned = Attempt::Settled(Err(Undelivered::Returned));
        let outcome = retry.resolve(returned, deadline).await;
        assert!(matches!(outcome, Some(Ok(Err(Undelivered::Returned)))), "{outcome:?}");
    }
}
