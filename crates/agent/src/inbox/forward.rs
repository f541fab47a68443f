//! Messages between the processes of an agent: a process passes a message on to the one that runs its
//! conversation, and keeps the delivery until that one has answered it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_contracts::{
    AgentName, Envelope, ForwardOutcome, ForwardReceipt, ForwardedMessage, InstanceId, MessageId,
    UserMessage, json::Limits, topology::user_message_at,
};
use tokio::{sync::oneshot, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{incoming::Incoming, leases::Holder, order::Unpassed, ownership::Ownership};

/// Pause before a message is published again that the bus did not accept.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Attempts to publish a receipt. Without it, the other process finds the lease released.
const RECEIPT_ATTEMPTS: usize = 3;

/// Outcome of a forwarded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwarded {
    /// The other process answered it.
    Answered,
    /// The other process no longer runs the conversation.
    Returned,
    /// The other process is gone.
    HolderGone,
    /// This process stops.
    Stopped,
}

/// The forwarded messages that wait for their receipt, by correlation id.
type PendingReceipts = Mutex<HashMap<Arc<str>, oneshot::Sender<ForwardOutcome>>>;

/// Passes messages on to other processes of the agent.
pub(crate) struct Forwarder {
    bus: Arc<dyn Bus>,
    agent: AgentName,
    /// This incarnation of the process.
    own: InstanceId,
    /// Interval between checks of the other process's lease.
    check_interval: Duration,
    waiting: PendingReceipts,
}

impl Forwarder {
    pub(crate) fn new(
        bus: Arc<dyn Bus>,
        agent: AgentName,
        own: InstanceId,
        check_interval: Duration,
    ) -> Self {
        Self { bus, agent, own, check_interval, waiting: Mutex::default() }
    }

    /// Passes a message on to `holder`, and waits until it is answered, the lease of `holder` ends, or
    /// `stop` is cancelled. Drops `unpassed` once the bus has the message.
    ///
    /// # Cancellation
    /// `holder` may have received the message.
    pub(crate) async fn forward(
        &self,
        incoming: &Incoming<'_>,
        holder: &Holder,
        ownership: &Ownership,
        unpassed: &mut Option<Unpassed<'_>>,
        stop: &CancellationToken,
    ) -> Forwarded {
        let id: Arc<str> = MessageId::generate().as_str().into();
        let Incoming { envelope: received, message, sender, .. } = incoming;
        let payload = ForwardedMessage {
            from: self.own.clone(),
            sender: sender.as_deref().map(str::to_owned),
            message: message.clone(),
        };
        let envelope = Envelope {
            message_id: received.message_id.clone(),
            reply_to: received.reply_to.clone(),
            source: received.source.clone(),
            budget: received.budget,
            trust: received.trust,
            trace: received.trace.clone(),
            ..Envelope::from_payload(&payload).with_correlation_id(id.clone())
        };
        let mut receipt = PendingReceipt::register(&self.waiting, id);
        let key = user_message_at(&self.agent, &holder.instance);
        let publication = Publication::mandatory(key, envelope);
        loop {
            match self.bus.publish(publication.clone()).await {
                Ok(()) => break,
                Err(PublishError::Unroutable { .. }) => return Forwarded::HolderGone,
                Err(error) => debug!(%error, "message not forwarded; retrying"),
            }
            if stop.run_until_cancelled(sleep(RETRY_WAIT)).await.is_none() {
                return Forwarded::Stopped;
            }
            if !self.holds(ownership, message, holder).await {
                return Forwarded::Returned;
            }
        }
        drop(unpassed.take());
        let lease_ended = async {
            loop {
                sleep(self.check_interval).await;
                if !self.holds(ownership, message, holder).await {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            outcome = &mut receipt.outcome => match outcome {
                Ok(ForwardOutcome::Answered) => Forwarded::Answered,
                Ok(ForwardOutcome::Returned) | Err(_) => Forwarded::Returned,
            },
            () = stop.cancelled() => Forwarded::Stopped,
            () = lease_ended => Forwarded::Returned,
        }
    }

    /// Returns whether the holder has its lease, or the store cannot tell.
    async fn holds(&self, ownership: &Ownership, message: &UserMessage, holder: &Holder) -> bool {
        let held = ownership.is_holder(&message.session_id, holder).await;
        held.unwrap_or_else(|error| {
            debug!(%error, "lease lookup failed");
            true
        })
    }

    /// Passes a receipt on to the forward that waits for it.
    pub(crate) fn receive_receipt(&self, envelope: &Envelope) {
        let receipt = match envelope.decode::<ForwardReceipt>(Limits::default()) {
            Ok(receipt) => receipt,
            Err(error) => return warn!(%error, "invalid receipt of a forwarded message"),
        };
        let id = envelope.correlation_id.as_ref();
        match id.and_then(|id| self.waiting.lock().remove(id)) {
            // A receiver that stopped waiting is ignored.
            Some(waiting) => drop(waiting.send(receipt.outcome)),
            None => debug!("receipt without a waiting message dropped"),
        }
    }

    /// Reports the outcome of a message to the process that forwarded it.
    pub(crate) async fn send_receipt(
        &self,
        forwarded: &Envelope,
        from: &InstanceId,
        outcome: ForwardOutcome,
    ) {
        let Some(id) = forwarded.correlation_id.clone() else { return };
        let envelope = Envelope::from_payload(&ForwardReceipt { outcome }).with_correlation_id(id);
        let key = user_message_at(&self.agent, from);
        for _ in 0..RECEIPT_ATTEMPTS {
            match self.bus.publish(Publication::mandatory(key.clone(), envelope.clone())).await {
                Ok(()) => return,
                Err(error @ PublishError::Unroutable { .. }) => {
                    return debug!(%error, "process that forwarded the message is gone");
                }
                Err(error) => debug!(%error, "receipt not published"),
            }
        }
    }
}

/// The receipt of a forwarded message. Dropping it stops waiting.
struct PendingReceipt<'a> {
    waiting: &'a PendingReceipts,
    id: Arc<str>,
    outcome: oneshot::Receiver<ForwardOutcome>,
}

impl<'a> PendingReceipt<'a> {
    fn register(waiting: &'a PendingReceipts, id: Arc<str>) -> Self {
        let (sender, outcome) = oneshot::channel();
        waiting.lock().insert(id.clone(), sender);
        Self { waiting, id, outcome }
    }
}

impl Drop for PendingReceipt<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}
