//! Replies to users that wait for no answer, over the bus.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{AgentReply, ContentTrust, Envelope, RoutingKey};

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
        let publication = Publication::mandatory(to, envelope);
        Box::pin(async move { Delivered::from(self.bus.publish(publication).await) })
    }
}
