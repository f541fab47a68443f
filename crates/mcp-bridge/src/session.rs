//! Sessions with servers: listing and calling tools.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use rmcp::{
    RoleClient,
    model::{
        ClientRequest, PaginatedRequestParams, PingRequest, Request, SubscribeRequestParams, Tool,
        UnsubscribeRequestParams,
    },
    service::{ClientCacheConfig, Peer, PeerRequestOptions, ServiceError},
};
use rockbot_contracts::mcp::{McpPromptMessage, McpToolDefinition};
use rockbot_tools::{ToolContext, ToolResult};
use serde_json::Value;
use tokio::time::timeout;
use tracing::{Instrument, debug, warn};

use crate::{
    call_error::CallError,
    call_link::CallLink,
    client::Client,
    config::ServerConfig,
    content::{self, BoundedContent, ContentFailure, ResourceList},
    definitions::{Definitions, MAX_TOOLS, Offers},
    followed_resources::Followed,
    server_call::ServerCall,
    server_session::{ServerInfo, ServerSession},
    task_handles::TaskHandles,
    telemetry,
    transport::describe_request,
};

/// The default idle timeout of a call: how long the server may send nothing.
pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(60);
/// The time limit for one page of the tool list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of pages of the tool list.
const MAX_PAGES: usize = 100;
/// The time limit for a subscription to a resource.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of subscriptions that are requested at a time.
const CONCURRENT_SUBSCRIPTIONS: usize = 16;
/// The time limit for a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// An open session. Calls run concurrently.
pub(crate) struct Session {
    link: CallLink,
    calls: Arc<AtomicUsize>,
    info: ServerInfo,
    /// The server declares resources.
    has_resources: bool,
    /// The server reports changes of resources that are subscribed to.
    pub(crate) has_subscriptions: bool,
    /// The server declares prompts.
    pub(crate) has_prompts: bool,
}

impl Session {
    /// `handles` keeps the tasks of a server that other bridges reach as well.
    pub(crate) async fn new(
        peer: Peer<RoleClient>,
        client: Client,
        server: &str,
        handles: Option<TaskHandles>,
    ) -> Self {
        // Lists are requested after change notifications, so cached responses would be stale.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = peer.peer_info();
        let info = info.as_deref();
        let version = info.map(|info| info.protocol_version.clone()).unwrap_or_default();
        let capabilities = info.map(|info| info.capabilities.clone()).unwrap_or_default();
        let has_handshake = version.has_initialize();
        let server_info = ServerInfo {
            display_name: info
                .and_then(|info| info.server_info.as_ref())
                .map(|server| server.title.clone().unwrap_or_else(|| server.name.clone())),
            instructions: info.and_then(|info| info.instructions.clone()),
            protocol_version: version.to_string(),
        };
        Self {
            info: server_info,
            has_resources: capabilities.resources.is_some(),
            has_subscriptions: capabilities
                .resources
                .as_ref()
                .is_some_and(|resources| resources.subscribe == Some(true)),
            has_prompts: capabilities.prompts.is_some(),
            link: CallLink {
                has_tasks: !has_handshake && capabilities.supports_tasks(),
                peer,
                client,
                server: server.into(),
                has_handshake,
                handles,
            },
            calls: Arc::default(),
        }
    }

    /// Returns whether the session began with a handshake, as before 2026-07-28.
    pub(crate) fn has_handshake(&self) -> bool {
        self.link.has_handshake
    }

    /// Returns the protocol peer.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        &self.link.peer
    }

    /// Returns the number of running calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the tools that the server lists, within bounds.
    ///
    /// # Errors
    /// When a page is missing or invalid.
    async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let mut page = PaginatedRequestParams::default();
            page.cursor = cursor;
            let listed = timeout(LIST_TIMEOUT, self.link.peer.list_tools(Some(page))).await;
            let page = listed.map_err(|_| ServiceError::Timeout { timeout: LIST_TIMEOUT })??;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MAX_TOOLS {
                break;
            }
        }
        Ok(tools)
    }

    /// Returns the offers of the server besides tools that its configuration permits. A list of prompts that
    /// fails is empty: the tools do not depend on it.
    async fn offers(&self, config: &ServerConfig) -> Offers {
        let has_resources = self.has_resources && config.resources;
        let mut offers = Offers { has_resources, ..Offers::default() };
        if self.has_prompts && config.prompts {
            match content::list_prompts(&self.link.peer).await {
                Ok(prompts) => offers.prompts = prompts,
                Err(error) => warn!(server = %config.name, error, "prompt listing failed"),
            }
        }
        offers
    }

    /// Returns whether the server replies, even with an error.
    pub(crate) async fn ping(&self) -> bool {
        let options = PeerRequestOptions::with_timeout(PING_TIMEOUT);
        let request = if self.has_handshake() {
            ClientRequest::PingRequest(PingRequest::default())
        } else {
            // The later revisions have no ping.
            ClientRequest::ListToolsRequest(rmcp::model::ListToolsRequest::default())
        };
        let sent =
            timeout(PING_TIMEOUT, self.link.peer.send_request_with_option(request, options)).await;
        match sent {
            Ok(Ok(handle)) => {
                matches!(handle.await_response().await, Ok(_) | Err(ServiceError::McpError(_)))
            }
            _ => false,
        }
    }

    /// Subscribes to changes of a resource that a caller has read.
    async fn follow(&self, uri: &str) {
        match self.link.client.resources().follow(uri) {
            // The changes of other sessions are part of one stream, which the connection task opens.
            Followed::Added { dropped } if self.has_handshake() => {
                self.subscribe(&[uri.to_owned()]).await;
                if let Some(dropped) = dropped {
                    let params = UnsubscribeRequestParams::new(dropped);
                    let request = Request::new(params);
                    self.request_subscription(ClientRequest::UnsubscribeRequest(request)).await;
                }
            }
            Followed::Added { .. } | Followed::Known => {}
        }
    }

    /// Subscribes to changes of resources, concurrently. A failure is only logged: callers have the content.
    pub(crate) async fn subscribe(&self, uris: &[String]) {
        let subscribe = |uri: &String| {
            let request = Request::new(SubscribeRequestParams::new(uri.as_str()));
            self.request_subscription(ClientRequest::SubscribeRequest(request))
        };
        stream::iter(uris).for_each_concurrent(CONCURRENT_SUBSCRIPTIONS, subscribe).await;
    }

    async fn request_subscription(&self, request: ClientRequest) {
        let sent = timeout(SUBSCRIBE_TIMEOUT, self.link.peer.send_request(request)).await;
        if !matches!(sent, Ok(Ok(_))) {
            debug!(server = %self.link.server, "subscription to a resource not changed");
        }
    }

    async fn traced_call(
        &self,
        tool: &McpToolDefinition,
        arguments: &Value,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<ToolResult, CallError> {
        let _active = ActiveCall::start(&self.calls);
        let span = telemetry::call_span(&self.info.protocol_version, tool, context);
        let call = ServerCall { link: &self.link, tool, context, idle };
        let outcome = Box::pin(call.run(arguments)).instrument(span.clone()).await;
        match outcome {
            Err(error @ (CallError::SessionExpired | CallError::TaskDetached)) => {
                telemetry::record_session_expiry(&span);
                Err(error)
            }
            outcome => {
                let outcome = outcome.map_err(CallError::into_failure);
                telemetry::record_outcome(&span, &outcome);
                Ok(outcome?)
            }
        }
    }
}

impl ServerSession for Session {
    fn info(&self) -> &ServerInfo {
        &self.info
    }

    fn list<'a>(&'a self, config: &'a ServerConfig) -> BoxFuture<'a, Result<Definitions, String>> {
        Box::pin(async move {
            let listed = self.tools().await.map_err(|error| describe_request(&error))?;
            let offers = self.offers(config).await;
            Ok(Definitions {
                offers,
                ..Definitions::from_listed(config, listed, self.link.has_tasks)
            })
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a McpToolDefinition,
        arguments: &'a Value,
        context: &'a ToolContext,
        idle: Duration,
    ) -> BoxFuture<'a, Result<ToolResult, CallError>> {
        Box::pin(self.traced_call(tool, arguments, context, idle))
    }

    fn resources(
        &self,
        templates: bool,
        after: Option<String>,
    ) -> BoxFuture<'_, Result<ResourceList, ContentFailure>> {
        Box::pin(async move {
            if !self.has_resources {
                return Err(ContentFailure::not_offered("resources"));
            }
            content::list_resources(&self.link.peer, templates, after).await
        })
    }

    fn read_resource<'a>(
        &'a self,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<BoundedContent, ContentFailure>> {
        Box::pin(async move {
            if !self.has_resources {
                return Err(ContentFailure::not_offered("resources"));
            }
            let read = content::read_resource(&self.link.peer, uri).await?;
            if self.has_subscriptions {
                self.follow(uri).await;
            }
            Ok(read)
        })
    }

    fn prompt<'a>(
        &'a self,
        name: &'a str,
        arguments: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Vec<McpPromptMessage>, ContentFailure>> {
        Box::pin(async move {
            if !self.has_prompts {
                return Err(ContentFailure::not_offered("prompts"));
            }
            content::get_prompt(&self.link.peer, name, arguments).await
        })
    }
}

/// Counts a running call until dropped.
struct ActiveCall(Arc<AtomicUsize>);

impl ActiveCall {
    fn start(calls: &Arc<AtomicUsize>) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls.clone())
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
