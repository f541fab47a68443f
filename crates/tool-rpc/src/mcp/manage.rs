//! A bridge shows, adds and removes servers for whoever asks over the bus.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, ConsumeError, Delivery, Handler, Publication, PublishError, Settlement, Subscription,
    Worker,
};
use rockbot_contracts::{
    ContentTrust, DecodeError, Envelope, InstanceId, Message, QueueSpec, RoutingKey,
    identity::CallerPolicy,
    json::Limits,
    mcp::{
        McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetailsRequest,
        McpServerRegistered, McpServerUnregistered, McpUnregisterServerRequest,
    },
    topology::{is_mcp_manage_reply, mcp_manage, mcp_manage_at},
};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{McpGateway, ask_bridge::refusal};

/// Requests that are worked on at once, in each of the two queues.
const CONCURRENCY: u16 = 16;

/// No request takes longer, whatever its asker allows.
const MOST_TIME: Duration = Duration::from_secs(60);

/// A gateway at the service of askers on the bus: what any bridge can do comes from a shared queue,
/// what is about a server of this one from a queue of its own.
///
/// A request that is not its sender's own, or that wants its answer elsewhere, is given up.
#[derive(Debug)]
pub struct ManageWorker {
    shared: Worker,
    own: Worker,
}

impl ManageWorker {
    /// Starts to serve `gateway` to `askers`, as the process `instance` of the service `bridge`.
    ///
    /// # Errors
    /// When a queue can't be consumed.
    pub async fn start(
        bus: &Arc<dyn Bus>,
        gateway: Arc<dyn McpGateway>,
        bridge: &str,
        instance: &InstanceId,
        askers: CallerPolicy,
    ) -> Result<Self, ConsumeError> {
        let source = format!("{bridge}/{instance}");
        let desk = Arc::new(Desk { bus: bus.clone(), gateway, source, askers });
        let serve = async |queue| {
            let subscription = Subscription::new(queue, CONCURRENCY);
            Worker::start(bus.as_ref(), subscription, desk.clone()).await
        };
        let own = serve(QueueSpec::inbox(&mcp_manage_at(instance))).await?;
        let shared = serve(QueueSpec::work(&mcp_manage())).await?;
        Ok(Self { shared, own })
    }

    /// Stops taking requests, and answers those under way within `grace`. Whether all were.
    pub async fn drain(self, grace: Duration) -> bool {
        let (shared, own) = tokio::join!(self.shared.drain(grace), self.own.drain(grace));
        shared && own
    }
}

struct Desk {
    bus: Arc<dyn Bus>,
    gateway: Arc<dyn McpGateway>,
    source: String,
    askers: CallerPolicy,
}

impl Desk {
    async fn take(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let reply_to = match &envelope.reply_to {
            Some(key) if is_mcp_manage_reply(key) => key.clone(),
            // Answering elsewhere would let a caller make this process publish requests.
            _ => {
                return Settlement::dead_letter(
                    "its reply-to is not an address for answers about MCP servers",
                );
            }
        };
        if let Err(impostor) = self.askers.admit(envelope) {
            // The broker vouches for the name in it.
            warn!(%impostor, "refused a request");
            return Settlement::dead_letter(impostor.to_string());
        }
        let time = envelope.remaining().map_or(MOST_TIME, |left| left.min(MOST_TIME));
        if time.is_zero() {
            return Settlement::dead_letter("nobody waits for it any more");
        }
        match self.answer(envelope, time).await {
            Ok(answer) => self.reply(envelope, reply_to, answer).await,
            Err(error) => {
                let error = error.to_string();
                // It quotes what could not be read.
                debug!(error, "unreadable request");
                let told = refusal("", McpManageErrorCode::InvalidRequest, &error);
                self.reply(envelope, reply_to, Envelope::from_payload(&told)).await;
                Settlement::dead_letter(error)
            }
        }
    }

    /// What is answered to a request; an error when it can't be read.
    async fn answer(&self, envelope: &Envelope, time: Duration) -> Result<Envelope, DecodeError> {
        let limits = Limits::default();
        match envelope.message_type() {
            McpRegisterServerRequest::TYPE => {
                let request: McpRegisterServerRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                info!("asked to add a server");
                let added = async {
                    let server = self.gateway.register(request).await?;
                    Ok(McpServerRegistered { server })
                };
                Ok(in_time(added, time, &server).await)
            }
            McpUnregisterServerRequest::TYPE => {
                let McpUnregisterServerRequest { server_name } = envelope.decode(limits)?;
                info!("asked to remove a server");
                let removed = async {
                    self.gateway.unregister(&server_name).await?;
                    Ok(McpServerUnregistered { server_name: server_name.clone() })
                };
                Ok(in_time(removed, time, &server_name).await)
            }
            _ => {
                let request: McpServerDetailsRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                Ok(in_time(self.gateway.details(request), time, &server).await)
            }
        }
    }

    /// An asker that does not hear the answer learns by its time-out; a second run of the request
    /// would tell it nothing truer, so it is not tried again.
    async fn reply(&self, asked: &Envelope, reply_to: RoutingKey, answer: Envelope) -> Settlement {
        let Some(id) = asked.correlation_id.as_deref() else { return Settlement::Ack };
        let answer = answer
            .with_correlation_id(id)
            .with_source(self.source.as_str())
            .with_trust(ContentTrust::ToolOutput);
        let published = self.bus.publish(Publication::mandatory(reply_to.clone(), answer)).await;
        match published {
            Ok(()) => {}
            Err(PublishError::TooLarge { bytes, limit }) => {
                let message = format!(
                    "the answer has {bytes} bytes, over the limit of {limit}; ask for one tool"
                );
                let told = refusal("", McpManageErrorCode::Unavailable, &message);
                let answer = Envelope::from_payload(&told)
                    .with_correlation_id(id)
                    .with_source(self.source.as_str());
                if let Err(error) = self.bus.publish(Publication::mandatory(reply_to, answer)).await
                {
                    warn!(%error, "an asker does not hear its answer");
                }
            }
            Err(error) => warn!(%error, "an asker does not hear its answer"),
        }
        Settlement::Ack
    }
}

/// The outcome as it crosses the bus, at the latest after `time`.
async fn in_time<M: Message>(
    work: impl Future<Output = Result<M, McpManageError>>,
    time: Duration,
    server: &str,
) -> Envelope {
    let late = |_| {
        let message = "the server did not answer in time; what was asked may have been done";
        Err(refusal(server, McpManageErrorCode::Unavailable, message))
    };
    match timeout(time, work).await.unwrap_or_else(late) {
        Ok(done) => Envelope::from_payload(&done),
        Err(error) => Envelope::from_payload(&error),
    }
}

impl Handler for Desk {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.take(delivery))
    }
}
