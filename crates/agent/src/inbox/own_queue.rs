//! The queue of this process: messages that other processes of the agent forward to it, and receipts for
//! those that it forwarded.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::{Delivery, Handler, Settlement};
use rockbot_contracts::{ForwardOutcome, ForwardReceipt, Message};
use tracing::warn;

use super::{
    handler::{InboxHandler, Processed, Replicas},
    incoming::Incoming,
};

/// Processes the messages of other processes of the agent.
pub(super) struct OwnQueueHandler {
    pub(super) inbox: Arc<InboxHandler>,
    /// The broker user of the agent, which other processes of the agent have too.
    pub(super) user: Option<Arc<str>>,
}

impl Handler for OwnQueueHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.receive(delivery))
    }
}

impl OwnQueueHandler {
    async fn receive(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let Some(Replicas { forwarder, .. }) = &self.inbox.replicas else {
            return Settlement::Ack;
        };
        if envelope.user_id != self.user {
            let user = envelope.user_id.as_deref();
            warn!(user, "forwarded message dropped: not of this agent's user");
            return Settlement::Ack;
        }
        if envelope.message_type() == ForwardReceipt::TYPE {
            forwarder.receive_receipt(envelope);
            return Settlement::Ack;
        }
        // The process that forwarded it still has the delivery and notices a message that is lost here.
        match Incoming::from_process(envelope) {
            Ok(incoming) => {
                let outcome = match self.inbox.process(&incoming).await {
                    Processed::Answered => ForwardOutcome::Answered,
                    Processed::Returned => ForwardOutcome::Returned,
                };
                if let Some(from) = &incoming.forwarded_by {
                    forwarder.send_receipt(envelope, from, outcome).await;
                }
            }
            Err(reason) => warn!(%reason, "invalid forwarded message dropped"),
        }
        Settlement::Ack
    }
}
