//! A channel to publish on, and how confirms and returns become results.
//!
//! The client library attaches a returned message to whichever confirm it processes next, which
//! may belong to another message of the channel. Two things keep results true all the same: a
//! return is believed only by the message whose id it carries, and is handed to that message by
//! whoever received it; and a lane carries the messages of one routing key, which are routable or
//! not together, so that a message with no return at all has none elsewhere.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lapin::{
    Channel, Confirmation, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use rockbot_bus::{Assurance, Publication, PublishError};
use rockbot_contracts::{Envelope, RoutingKey};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    codec,
    supervisor::{NoChannel, Supervisor},
};

/// Publishes to one exchange on a channel of its own, replaced when it breaks.
pub(crate) struct Lane {
    supervisor: Supervisor,
    exchange: ShortString,
    assurance: Assurance,
    open: Mutex<Option<Open>>,
    opening: tokio::sync::Mutex<()>,
    returned: Returned,
}

#[derive(Clone)]
struct Open {
    channel: Arc<Channel>,
    generation: u64,
}

impl Lane {
    pub(crate) fn new(supervisor: Supervisor, exchange: ShortString, assurance: Assurance) -> Self {
        Self {
            supervisor,
            exchange,
            assurance,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            returned: Returned::default(),
        }
    }

    pub(crate) async fn publish(&self, publication: &Publication) -> Result<(), PublishError> {
        let Publication { key, envelope, mandatory, timeout, .. } = publication;
        let routing_key =
            ShortString::try_new(key.as_str()).map_err(|error| not_sent(error.to_string()))?;
        self.send(routing_key, envelope, *mandatory, *timeout).await?.map_err(|lost| match lost {
            Lost::Returned => PublishError::Unroutable { key: key.clone() },
            Lost::Nacked => PublishError::Refused { key: key.clone() },
            Lost::Silent(reason) => PublishError::Unconfirmed { key: key.clone(), reason },
        })
    }

    /// Publishes with a name that is not a routing key of ours, such as a queue's.
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

    async fn send(
        &self,
        routing_key: ShortString,
        envelope: &Envelope,
        mandatory: bool,
        within: Duration,
    ) -> Result<Result<(), Lost>, PublishError> {
        let deadline = Instant::now() + within;
        let properties = codec::encode(envelope).map_err(|error| not_sent(error.to_string()))?;
        // The broker refuses a message that is signed by another than the connection's user.
        let properties = properties.with_user_id(self.supervisor.user());
        let open = self.open(deadline).await?;
        let options = BasicPublishOptions { mandatory, immediate: false };
        let published = open.channel.basic_publish(
            self.exchange.clone(),
            routing_key,
            options,
            &envelope.body,
            properties,
        );
        let confirm = match timeout_at(deadline, published).await {
            Ok(Ok(confirm)) => confirm,
            Ok(Err(error)) if !open.channel.status().connected() => {
                self.forget(&open);
                return Ok(Err(Lost::Silent(error.to_string())));
            }
            Ok(Err(error)) => return Err(not_sent(error.to_string())),
            Err(_) => {
                let reason = "the socket took no more bytes in time".to_owned();
                return Ok(Err(Lost::Silent(reason)));
            }
        };
        if self.assurance == Assurance::Sent {
            return Ok(Ok(()));
        }
        let confirmation = match timeout_at(deadline, Watched::new(confirm)).await {
            Ok(Ok(confirmation)) => confirmation,
            Ok(Err(error)) => {
                self.forget(&open);
                return Ok(Err(Lost::Silent(error.to_string())));
            }
            Err(_) => return Ok(Err(Lost::Silent(format!("no confirm within {within:?}")))),
        };
        Ok(self.judge(confirmation, envelope).await)
    }

    async fn judge(&self, confirmation: Confirmation, envelope: &Envelope) -> Result<(), Lost> {
        let id = envelope.message_id.as_str();
        let (acked, returned) = match confirmation {
            Confirmation::Ack(returned) => (true, returned),
            Confirmation::Nack(returned) => (false, returned),
            Confirmation::NotRequested => return Ok(()),
        };
        if let Some(returned) = returned {
            let of = returned.delivery.properties.message_id().as_ref().map(ShortString::as_str);
            match of {
                Some(of) if of != id => {
                    self.returned.hand_over(of);
                    if self.returned.claim(id).await {
                        return Err(Lost::Returned);
                    }
                }
                _ => return Err(Lost::Returned),
            }
        } else if self.returned.take(id) {
            return Err(Lost::Returned);
        }
        if acked { Ok(()) } else { Err(Lost::Nacked) }
    }

    /// The open channel, or a fresh one on the current connection.
    async fn open(&self, deadline: Instant) -> Result<Open, PublishError> {
        if let Some(open) = self.usable() {
            return Ok(open);
        }
        let opened = timeout_at(deadline, async {
            // One opens, the others wait for it.
            let _turn = self.opening.lock().await;
            if let Some(open) = self.usable() {
                return Ok(open);
            }
            self.open_fresh().await
        });
        match opened.await {
            Ok(Ok(open)) => Ok(open),
            Ok(Err(NoChannel::Closed)) => Err(PublishError::Closed),
            Ok(Err(NoChannel::Disconnected { reason })) => {
                Err(PublishError::Disconnected { reason })
            }
            Err(_) => Err(PublishError::Disconnected { reason: self.supervisor.reason() }),
        }
    }

    async fn open_fresh(&self) -> Result<Open, NoChannel> {
        let link = self.supervisor.link().await?;
        let disconnected = |reason| NoChannel::Disconnected { reason };
        let channel = link.open_channel().await.map_err(disconnected)?;
        if self.assurance == Assurance::Confirmed {
            let select = channel.confirm_select(ConfirmSelectOptions::default());
            select.await.map_err(|error| disconnected(error.to_string()))?;
        }
        let open = Open { channel: Arc::new(channel), generation: link.generation };
        *self.slot() = Some(open.clone());
        Ok(open)
    }

    fn usable(&self) -> Option<Open> {
        self.slot().clone().filter(|open| open.channel.status().connected())
    }

    fn forget(&self, broken: &Open) {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|open| Arc::ptr_eq(&open.channel, &broken.channel)) {
            tracing::debug!(generation = broken.generation, "a publishing channel broke");
            *slot = None;
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a message that went out did not arrive, or may not have.
#[derive(Debug)]
enum Lost {
    Returned,
    Nacked,
    Silent(String),
}

fn not_sent(reason: String) -> PublishError {
    PublishError::Disconnected { reason }
}

/// Returns that came with the confirm of another message, until their own message asks.
#[derive(Default)]
struct Returned {
    any: AtomicBool,
    ids: Mutex<HashSet<Box<str>>>,
    handed_over: Notify,
}

impl Returned {
    /// Beyond this the oldest are of messages that nobody waits for any more.
    const MOST: usize = 1024;

    /// How long a message that received another's return waits for its own. The confirms that
    /// were mixed up came together, so their waiters are awake already.
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

    fn take(&self, id: &str) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ids.remove(id);
        self.any.store(!ids.is_empty(), Ordering::Release);
        found
    }

    /// Waits for the message's own return. False when it has none.
    async fn claim(&self, id: &str) -> bool {
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

/// A confirm that is never dropped unresolved: the library would keep it for as long as the
/// channel lives. One that nobody waits for any more is waited for here, with a bound.
struct Watched(Option<PublisherConfirm>);

/// How long an abandoned confirm is waited for.
const ABANDONED_FOR: Duration = Duration::from_secs(60);

impl Watched {
    fn new(confirm: PublisherConfirm) -> Self {
        Self(Some(confirm))
    }
}

impl Future for Watched {
    type Output = lapin::Result<Confirmation>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let Some(confirm) = self.0.as_mut() else { return std::task::Poll::Pending };
        let polled = std::pin::Pin::new(confirm).poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (Some(confirm), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(tokio::time::timeout(ABANDONED_FOR, confirm));
        }
    }
}

/// Lanes by routing key. Answers share one: whoever answers does the same whether an asker is gone
/// or not, and there is a key for every asker.
pub(crate) fn lane_key(key: &RoutingKey) -> Option<&RoutingKey> {
    use rockbot_contracts::topology::{is_tool_reply, is_user_reply};
    (!is_tool_reply(key) && !is_user_reply(key)).then_some(key)
}
