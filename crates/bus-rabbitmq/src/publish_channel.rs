//! A channel to publish on, and the mapping of confirms and returns to results.
//!
//! The client library attaches a returned message to the confirm that it processes next, which may
//! belong to another message of the channel. A message therefore accepts a return only with its own
//! message id, and hands over a return of another message. On a channel for one routing key, whose
//! messages are routable or not together, this makes every result correct. Replies to all callers share
//! one channel: there a reply to a caller that is gone may be reported as delivered, if its return is
//! handed over only after its own confirm was processed. The sender of a reply treats both alike.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

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
    refusal::{self, Refusal},
    supervisor::{NoChannel, Supervisor},
    topology::Namespace,
    traffic::{Flight, Traffic},
};

/// Publishes to one exchange on its own channel, which is replaced when it closes.
pub(crate) struct PublishChannel {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    exchange: ShortString,
    assurance: Assurance,
    open: Mutex<Option<Arc<Open>>>,
    opening: tokio::sync::Mutex<()>,
    returned: Returned,
}

struct Open {
    channel: Channel,
    generation: u64,
    blocked: watch::Receiver<Option<Arc<str>>>,
    traffic: Traffic,
}

/// Outcome of one attempt to send.
enum Sent {
    Known(Result<(), Lost>),
    /// The message was not sent; with the reason.
    Not(String),
    /// The exchange was deleted with all bindings; the broker dropped the message.
    NoExchange,
}

/// Retries of a message that was not sent.
#[derive(Default)]
struct Again {
    waits: Option<Box<Waits>>,
    bound_by: Option<Instant>,
}

/// Time after the detection of a missing exchange during which a message may be unroutable, until its
/// consumers have restored their bindings.
const BOUND_AGAIN_WITHIN: Duration = Duration::from_secs(4);

impl Again {
    /// Waits for the next delay; `None` when the deadline comes first.
    async fn wait(&mut self, deadline: Instant) -> Option<()> {
        let next = Instant::now()
            + self.waits.get_or_insert_with(|| Box::new(backoff::waits())).next_wait();
        if next >= deadline {
            return None;
        }
        tokio::time::sleep_until(next).await;
        Some(())
    }

    fn exchange_was_missing(&mut self) {
        self.bound_by.get_or_insert(Instant::now() + BOUND_AGAIN_WITHIN);
    }

    fn may_be_bound_later(&self) -> bool {
        self.bound_by.is_some_and(|bound_by| Instant::now() < bound_by)
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
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            returned: Returned::default(),
        }
    }

    pub(crate) async fn publish(&self, publication: &Publication) -> Result<(), PublishError> {
        let Publication { key, envelope, mandatory, timeout, .. } = publication;
        let routing_key = ShortString::try_new(key.as_str())
            .map_err(|error| PublishError::Unsendable { reason: error.to_string() })?;
        self.send(routing_key, envelope, *mandatory, *timeout).await?.map_err(|lost| match lost {
            Lost::Returned => PublishError::Unroutable { key: key.clone() },
            Lost::Nacked => PublishError::Refused { key: key.clone() },
            Lost::Silent(reason) => PublishError::Unconfirmed { key: key.clone(), reason },
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
            Ok(Err(lost)) => Err(format!("{lost:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends the message. Retries only when it was certainly not sent.
    ///
    /// Many calls wait here, so rare paths are boxed to keep the future small.
    async fn send(
        &self,
        routing_key: ShortString,
        envelope: &Envelope,
        mandatory: bool,
        within: Duration,
    ) -> Result<Result<(), Lost>, PublishError> {
        let deadline = Instant::now() + within;
        let mut again = Again::default();
        loop {
            let open = match self.ready() {
                Some(open) => open,
                None => {
                    // Validated first: an invalid message need not wait for a connection.
                    self.properties(envelope)?;
                    Box::pin(self.open(deadline)).await?
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
            let reason = match self.sent(&open, published, envelope, deadline).await {
                Sent::Known(Err(Lost::Returned)) if again.may_be_bound_later() => {
                    "its consumers have not bound again".to_owned()
                }
                Sent::Known(known) => return Ok(known),
                Sent::Not(reason) => reason,
                Sent::NoExchange => {
                    self.supervisor.doubt_topology();
                    again.exchange_was_missing();
                    format!("the exchange {} was deleted", self.exchange)
                }
            };
            Box::pin(again.wait(deadline)).await.ok_or_else(|| not_sent(reason))?;
        }
    }

    fn properties(&self, envelope: &Envelope) -> Result<BasicProperties, PublishError> {
        let properties = codec::encode(envelope)
            .map_err(|error| PublishError::Unsendable { reason: error.to_string() })?;
        // The broker refuses a message with the user id of another user.
        Ok(properties.with_user_id(self.supervisor.user()))
    }

    /// Waits for the outcome of a message.
    async fn sent(
        &self,
        open: &Open,
        published: impl Future<Output = lapin::Result<PublisherConfirm>> + Unpin,
        envelope: &Envelope,
        deadline: Instant,
    ) -> Sent {
        let flight = open.traffic.begin();
        let judged = {
            let confirmed = pin!(async {
                let confirm = published.await?;
                match self.assurance {
                    Assurance::Sent => Ok(Confirmation::NotRequested),
                    Assurance::Confirmed => PendingConfirm::new(confirm).await,
                }
            });
            match wait_on_channel(&open.channel, deadline, confirmed).await {
                Ok(Ok(confirmation)) => self.judge(confirmation, &envelope.message_id),
                Ok(Err(error)) => return self.broken(open, &error, &flight),
                Err(silence) => return self.silent(open, silence),
            }
        };
        Sent::Known(match judged {
            Judged::Known(known) => known,
            Judged::MixedUp { otherwise } => {
                match Box::pin(self.returned.claim(&envelope.message_id)).await {
                    true => Err(Lost::Returned),
                    false => otherwise,
                }
            }
        })
    }

    fn silent(&self, open: &Open, silence: WaitError) -> Sent {
        if silence == WaitError::ChannelGone {
            self.forget(open);
        }
        Sent::Known(Err(Lost::Silent(silence.to_string())))
    }

    /// Returns the outcome of a message after an error of the channel.
    fn broken(&self, open: &Open, error: &lapin::Error, flight: &Flight<'_>) -> Sent {
        self.forget(open);
        // The library checks the channel before it accepts the message.
        if matches!(error.kind(), ErrorKind::InvalidChannelState(_, "basic.publish")) {
            return Sent::Not(error.to_string());
        }
        // The broker drops a message to a missing exchange. Only if no other message was in flight on the
        // channel does the error certainly belong to this one.
        if refusal::refusal(error) == Some(Refusal::NotFound) && flight.was_alone() {
            return Sent::NoExchange;
        }
        Sent::Known(Err(Lost::Silent(error.to_string())))
    }

    fn judge(&self, confirmation: Confirmation, id: &MessageId) -> Judged {
        let (known, returned) = match confirmation {
            Confirmation::Ack(returned) => (Ok(()), returned),
            Confirmation::Nack(returned) => (Err(Lost::Nacked), returned),
            Confirmation::NotRequested => return Judged::Known(Ok(())),
        };
        let Some(returned) = returned else {
            let own = self.returned.take(id);
            return Judged::Known(if own { Err(Lost::Returned) } else { known });
        };
        match returned.delivery.properties.message_id() {
            Some(of) if of.as_str() != id.as_str() => {
                self.returned.hand_over(of.as_str());
                Judged::MixedUp { otherwise: known }
            }
            _ => Judged::Known(Err(Lost::Returned)),
        }
    }

    /// Returns the open channel, unless the broker blocks publishers.
    fn ready(&self) -> Option<Arc<Open>> {
        self.usable().filter(|open| open.blocked.borrow().is_none())
    }

    /// Waits until the broker accepts messages, and returns the open channel, or a new one on the current
    /// connection.
    async fn open(&self, deadline: Instant) -> Result<Arc<Open>, PublishError> {
        let mut waits = backoff::waits();
        let mut refused = None;
        let opened = timeout_at(deadline, async {
            loop {
                match self.open_once().await {
                    Ok(open) => {
                        // An error means that the connection was lost, which sending will detect.
                        let _ = open.blocked.clone().wait_for(Option::is_none).await;
                        return Ok(open);
                    }
                    Err(NoChannel::Closed) => return Err(PublishError::Closed),
                    Err(NoChannel::Disconnected { reason }) => refused = Some(reason),
                }
                tokio::time::sleep(waits.next_wait()).await;
            }
        });
        match opened.await {
            Ok(opened) => opened,
            Err(_) => Err(not_sent(refused.unwrap_or_else(|| self.supervisor.reason()))),
        }
    }

    async fn open_once(&self) -> Result<Arc<Open>, NoChannel> {
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        // One caller opens the channel while the others wait.
        let _turn = self.opening.lock().await;
        match self.usable() {
            Some(open) => Ok(open),
            None => self.open_fresh().await,
        }
    }

    async fn open_fresh(&self) -> Result<Arc<Open>, NoChannel> {
        let link = self.supervisor.link().await?;
        let disconnected = |reason| NoChannel::Disconnected { reason };
        let channel = link.open_channel().await.map_err(disconnected)?;
        let prepared = async {
            self.namespace.provide_exchanges(&channel).await?;
            if self.assurance == Assurance::Confirmed {
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
            }
            Ok(())
        };
        let prepared = link.until_lost(prepared).await.map_err(disconnected)?;
        prepared.map_err(|error: lapin::Error| disconnected(refusal::explain(&error)))?;
        let open = Arc::new(Open {
            channel,
            generation: link.generation,
            blocked: link.blocked(),
            traffic: Traffic::default(),
        });
        *self.slot() = Some(open.clone());
        Ok(open)
    }

    fn usable(&self) -> Option<Arc<Open>> {
        self.slot().clone().filter(|open| open.channel.status().connected())
    }

    fn forget(&self, broken: &Open) {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|open| std::ptr::eq(&**open, broken)) {
            tracing::debug!(generation = broken.generation, "a publishing channel broke");
            *slot = None;
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reasons why a sent message did not arrive, or may not have arrived.
#[derive(Debug)]
enum Lost {
    Returned,
    Nacked,
    Silent(String),
}

fn not_sent(reason: String) -> PublishError {
    PublishError::Disconnected { reason }
}

/// Outcome of a message after its confirm.
enum Judged {
    Known(Result<(), Lost>),
    /// The confirm carried the return of another message, so its own return may be with another confirm.
    MixedUp {
        /// Outcome if the message has no return.
        otherwise: Result<(), Lost>,
    },
}

/// Returns that arrived with the confirm of another message, until their own message takes them.
#[derive(Default)]
struct Returned {
    any: AtomicBool,
    ids: Mutex<HashSet<Box<str>>>,
    handed_over: Notify,
}

impl Returned {
    /// Maximum number of returns; beyond it, the messages of most are no longer awaited.
    const MOST: usize = 1024;

    /// Maximum wait of a message that received another's return for its own. Such confirms arrive
    /// together, so their receivers are awake already.
    const CLAIM_WITHIN: Duration = Duration::from_millis(500);

    fn hand_over(&self, id: &str) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() >= Self::MOST {
            ids.clear();
        }
        ids.insert(id.into());
        self.any.store(true, Ordering::Release);
        drop(ids);
        self.handed_over.notify_waiters();
    }

    fn take(&self, id: &MessageId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ids.remove(id.as_str());
        self.any.store(!ids.is_empty(), Ordering::Release);
        found
    }

    /// Waits for the return of the message `id`; false when it has none.
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
        timeout(Self::CLAIM_WITHIN, claimed).await.is_ok()
    }
}

/// Returns the key of the publish channel for `key`. Replies share one channel: there is a routing key
/// for each caller, and a sender of replies does the same whether a caller is gone or not.
pub(crate) fn channel_key(key: &RoutingKey) -> Option<&RoutingKey> {
    use rockbot_contracts::topology::{is_tool_reply, is_user_reply};
    (!is_tool_reply(key) && !is_user_reply(key)).then_some(key)
}
