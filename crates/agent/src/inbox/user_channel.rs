//! Replies to users that wait for no answer, over the bus.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_contracts::{AgentReply, ContentTrust, Envelope, RoutingKey};
use tracing::debug;

use crate::delegation::{Delivered, UserChannel};

/// Sends replies to the addresses of users.
pub(super) struct BusUserChannel {
    pub(super) bus: Arc<dyn Bus>,
}

impl UserChannel for BusUserChannel {
    fn send(&self, to: RoutingKey, reply: AgentReply) -> BoxFuture<'_, Delivered> {
        let envelope = Envelope::from_payload(&reply)
            .with_correlation_id(reply.in_reply_to.as_str())
            .with_source(reply.agent.as_str())
            .with_trust(ContentTrust::AgentMessage);
        Box::pin(async move {
            match self.bus.publish(Publication::mandatory(to, envelope)).await {
                Ok(()) => Delivered::Yes,
                Err(PublishError::Unroutable { .. }) => Delivered::Gone,
                Err(PublishError::Unconfirmed { .. }) => Delivered::Unconfirmed,
                Err(error) => {
                    debug!(%error, "reply to a user not published");
                    Delivered::Failed
                }
            }
        })
    }
}
