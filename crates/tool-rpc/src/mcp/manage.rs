//! Management requests of agents to a bridge: details, resources, prompts, registration and removal of
//! servers.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, ConsumeError, Delivery, Handler, Publication, PublishError, Settlement, Subscription,
    Worker,
};
use rockbot_contracts::{
    AgentName, ContentTrust, DecodeError, Envelope, InstanceId, Message, QueueSpec, RoutingKey,
    identity::CallerPolicy,
    json::Limits,
    mcp::{
        McpGetPromptRequest, McpInputAnswer, McpListResourcesRequest, McpManageError,
        McpManageErrorCode, McpReadResourceRequest, McpRegisterServerRequest,
        McpServerDetailsRequest, McpServerRegistered, McpServerUnregistered,
        McpUnregisterServerRequest,
    },
    topology::{is_mcp_manage_reply, mcp_manage, mcp_manage_at},
};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{McpGateway, bridge_request::manage_error, details_parts::part_after};
use crate::{input_requester::InputRequester, unknown_agent::unknown_agent};

/// Requests processed at once, in each of the two queues.
const CONCURRENCY: u16 = 16;

/// Maximum time for a request, even if its caller allows more.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Serves a gateway on the bus. Requests that any bridge can process come from a shared queue, requests
/// about a server of this bridge from its own queue.
///
/// A request with a forged source, or with a reply-to that is not a reply queue, is dead-lettered.
#[derive(Debug)]
pub struct ManageWorker {
    shared: Worker,
    own: Worker,
}

impl ManageWorker {
    /// Starts to serve `gateway` to `callers`, as the process `instance` of the service `bridge`. `input`
    /// takes the responses of users to requests of running tools.
    ///
    /// # Errors
    /// When a queue can't be consumed.
    pub async fn start(
        bus: &Arc<dyn Bus>,
        gateway: Arc<dyn McpGateway>,
        bridge: &str,
        instance: &InstanceId,
        callers: CallerPolicy,
        input: Option<Arc<InputRequester>>,
    ) -> Result<Self, ConsumeError> {
        let source = format!("{bridge}/{instance}");
        let handler = Arc::new(ManageHandler { bus: bus.clone(), gateway, source, callers, input });
        let serve = async |queue| {
            let subscription = Subscription::new(queue, CONCURRENCY);
            Worker::start(bus.as_ref(), subscription, handler.clone()).await
        };
        let own = serve(QueueSpec::inbox(&mcp_manage_at(instance))).await?;
        let shared = serve(QueueSpec::work(&mcp_manage())).await?;
        Ok(Self { shared, own })
    }

    /// Waits until a queue is no longer consumed although nothing stopped its worker, see
    /// [`Worker::ended`].
    pub async fn ended(&self) {
        tokio::select! {
            () = self.shared.ended() => {}
            () = self.own.ended() => {}
        }
    }

    /// Stops consuming, and finishes the requests in progress within `grace`. Returns whether all finished.
    pub async fn drain(self, grace: Duration) -> bool {
        let (shared, own) = tokio::join!(self.shared.drain(grace), self.own.drain(grace));
        shared && own
    }
}

struct ManageHandler {
    bus: Arc<dyn Bus>,
    gateway: Arc<dyn McpGateway>,
    source: String,
    callers: CallerPolicy,
    input: Option<Arc<InputRequester>>,
}

impl ManageHandler {
    async fn process(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let reply_to = match &envelope.reply_to {
            Some(key) if is_mcp_manage_reply(key) => key.clone(),
            // Any other key would let a caller make this process publish requests.
            _ => {
                return Settlement::dead_letter("reply-to is not an MCP-management address");
            }
        };
        let caller = match self.callers.admit(envelope) {
            Ok(caller) => caller,
            Err(error) => {
                // Safe to log: the broker validated the user name in the error.
                warn!(%error, "request rejected");
                return Settlement::dead_letter(error.to_string());
            }
        };
        let timeout = envelope.remaining().map_or(MAX_TIME, |left| left.min(MAX_TIME));
        if timeout.is_zero() {
            return Settlement::dead_letter("the deadline of the request has passed");
        }
        match self.execute(envelope, caller, timeout).await {
            Ok(reply) => self.reply(envelope, reply_to, reply).await,
            Err(error) => {
                let error = error.to_string();
                // At debug level: the error quotes the request.
                debug!(error, "unreadable request");
                let reply = manage_error("", McpManageErrorCode::InvalidRequest, &error);
                self.reply(envelope, reply_to, Envelope::from_payload(&reply)).await;
                Settlement::dead_letter(error)
            }
        }
    }

    /// Executes a request and returns its reply, or an error if the request is unreadable.
    async fn execute(
        &self,
        envelope: &Envelope,
        caller: Option<AgentName>,
        timeout: Duration,
    ) -> Result<Envelope, DecodeError> {
        let limits = Limits::default();
        match envelope.message_type() {
            McpRegisterServerRequest::TYPE => {
                let request: McpRegisterServerRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                info!("registration of a server requested");
                let added = async {
                    let server = self.gateway.register(request).await?;
                    Ok(McpServerRegistered { server })
                };
                Ok(with_timeout(added, timeout, &server).await)
            }
            McpUnregisterServerRequest::TYPE => {
                let McpUnregisterServerRequest { server_name } = envelope.decode(limits)?;
                info!("removal of a server requested");
                let removed = async {
                    self.gateway.unregister(&server_name).await?;
                    Ok(McpServerUnregistered { server_name: server_name.clone() })
                };
                Ok(with_timeout(removed, timeout, &server_name).await)
            }
            McpListResourcesRequest::TYPE => {
                let request: McpListResourcesRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                Ok(with_timeout(self.gateway.resources(request), timeout, &server).await)
            }
            McpReadResourceRequest::TYPE => {
                let request: McpReadResourceRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                Ok(with_timeout(self.gateway.read_resource(request), timeout, &server).await)
            }
            McpInputAnswer::TYPE => {
                let answer: McpInputAnswer = envelope.decode(limits)?;
                let caller = caller.unwrap_or_else(|| unknown_agent().clone());
                Ok(match &self.input {
                    Some(input) => Envelope::from_payload(&input.answer(&caller, answer)),
                    None => {
                        let message = "this bridge requests no input";
                        let code = McpManageErrorCode::NotFound;
                        Envelope::from_payload(&manage_error("", code, message))
                    }
                })
            }
            McpGetPromptRequest::TYPE => {
                let request: McpGetPromptRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                Ok(with_timeout(self.gateway.prompt(request), timeout, &server).await)
            }
            _ => {
                let mut request: McpServerDetailsRequest = envelope.decode(limits)?;
                let server = request.server_name.clone();
                let after = request.after.take();
                let details = async {
                    let details = self.gateway.details(request).await?;
                    Ok(match after {
                        Some(after) => part_after(details, &after),
                        None => details,
                    })
                };
                Ok(with_timeout(details, timeout, &server).await)
            }
        }
    }

    /// Publishes a reply. The request is acknowledged in any case: without a reply its caller times out,
    /// and a second execution would not give a better one.
    async fn reply(&self, request: &Envelope, reply_to: RoutingKey, reply: Envelope) -> Settlement {
        let Some(id) = request.correlation_id.as_deref() else { return Settlement::Ack };
        let reply = reply
            .with_correlation_id(id)
            .with_source(self.source.as_str())
            .with_trust(ContentTrust::ToolOutput);
        let published = self.bus.publish(Publication::mandatory(reply_to.clone(), reply)).await;
        match published {
            Ok(()) => {}
            Err(PublishError::TooLarge { bytes, limit }) => {
                let message = format!(
                    "the reply has {bytes} bytes, over the limit of {limit}; request less, such as a \
                     single tool"
                );
                let error = manage_error("", McpManageErrorCode::Unavailable, &message);
                let reply = Envelope::from_payload(&error)
                    .with_correlation_id(id)
                    .with_source(self.source.as_str());
                if let Err(error) = self.bus.publish(Publication::mandatory(reply_to, reply)).await
                {
                    warn!(%error, "reply not published");
                }
            }
            Err(error) => warn!(%error, "reply not published"),
        }
        Settlement::Ack
    }
}

/// Returns the result of `work` as a message, or a timeout error after `time`.
async fn with_timeout<M: Message>(
    work: impl Future<Output = Result<M, McpManageError>>,
    time: Duration,
    server: &str,
) -> Envelope {
    let timed_out = |_| {
        let message = "the server did not reply in time; the request may have been carried out";
        Err(manage_error(server, McpManageErrorCode::Unavailable, message))
    };
    match timeout(time, work).await.unwrap_or_else(timed_out) {
        Ok(done) => Envelope::from_payload(&done),
        Err(error) => Envelope::from_payload(&error),
    }
}

impl Handler for ManageHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.process(delivery))
    }
}
