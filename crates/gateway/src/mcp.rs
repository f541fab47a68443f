//! The MCP face: tools, agents and guides of the fleet for MCP clients, at `/mcp`.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use futures_util::{StreamExt, stream};
use rockbot_agent::{HandlerGuides, RemoteAgent};
use rockbot_bus::ConsumeError;
use rockbot_contracts::{AgentName, InstanceId, ToolCallId, topology::ReplyAddress};
use rockbot_mcp_server::{
    CallObserver, Discovery, FleetParts, HttpOptions, McpClient, McpFleet, McpHttp,
    McpServerSection, ObservedCall, RequestObserver,
};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{Guides, LayerOptions, Tool, ToolFailure, ToolFilter};

use crate::{
    call_record::CallRecord,
    face::{Access, Face, Route, RouteLimits},
    guard::{AuditAction, Guard, audit},
    identity::{Credential, FaceName, Identity, NamePatterns, Right},
    parts::GatewayParts,
};

/// Path of the face.
const PATH: &str = "/mcp";
/// Largest body of a request, in bytes. Arguments have at most 1 MiB.
const BODY_BYTES: usize = 2 * 1024 * 1024;
/// Time beyond the longest call until the head of a response.
const RESPONSE_SLACK: Duration = Duration::from_secs(60);
/// Time limit for the descriptions of the agents.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of agents that are asked concurrently.
const CONCURRENT_REQUESTS: usize = 8;

/// The MCP face of a gateway. Dropping it ends the updates of its tools.
pub struct McpFace {
    http: Arc<McpHttp>,
    response_timeout: Duration,
    _discovery: Discovery,
}

impl McpFace {
    /// Discovers the tools of the fleet, and calls them as `caller`, whose broker user that of the calls must be.
    /// `servers` are the MCP servers of this process; without them, those of the bridges on the bus are used. Returns
    /// `None` if the gateway may not call tools.
    ///
    /// # Errors
    /// When the queue of announcements cannot be consumed.
    ///
    /// # Cancellation
    /// Dropping the future stops the discovery.
    pub async fn start(
        parts: &GatewayParts,
        caller: AgentName,
        section: McpServerSection,
        servers: Option<Arc<dyn McpGateway>>,
    ) -> Result<Option<Self>, ConsumeError> {
        let Some(bus) = parts.calls.clone() else { return Ok(None) };
        // The other connections of the process may be a caller too.
        let address = ReplyAddress::new(caller.clone(), InstanceId::generate());
        let discovery = Discovery::start(bus, address).await?;
        let registry = discovery.registry.clone();
        let guides = Guides::new([]);
        let handlers = discovery.directory.view();
        guides.add(Arc::new(HandlerGuides::new(handlers, registry.clone())));
        let response_timeout = section.max_timeout + RESPONSE_SLACK;
        let fleet = McpFleet::start(FleetParts {
            caller,
            registry,
            servers: Some(servers.unwrap_or_else(|| discovery.servers.clone())),
            agents: agents(parts).await,
            guides,
            layers: LayerOptions::default(),
            announced: discovery.announced(),
            section,
        });
        // The guard has checked names of hosts and origins.
        let http = McpHttp::new(fleet, HttpOptions::default());
        Ok(Some(Self { http, response_timeout, _discovery: discovery }))
    }

    /// Returns the routes. `guard` counts the calls of people.
    pub(crate) fn face(&self, guard: &Arc<Guard>) -> Face {
        let limits = RouteLimits {
            body_bytes: BODY_BYTES,
            response: self.response_timeout,
            ..RouteLimits::default()
        };
        let methods = MethodFilter::GET.or(MethodFilter::POST).or(MethodFilter::DELETE);
        let handler = on(methods, serve).with_state((self.http.clone(), guard.clone()));
        let route = Route::service(McpHttp::methods(), PATH, Access::SignedIn, handler);
        Face { name: FaceName::Mcp, routes: vec![route.with_limits(limits)] }
    }

    /// Rejects further calls, waits for the running ones until `limit`, and ends all sessions.
    pub(crate) async fn stop(&self, limit: Duration) {
        self.http.stop(limit).await;
    }
}

impl fmt::Debug for McpFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpFace").field("http", &self.http).finish_non_exhaustive()
    }
}

async fn serve(
    State((http, guard)): State<(Arc<McpHttp>, Arc<Guard>)>,
    Extension(identity): Extension<Identity>,
    mut request: Request,
) -> Response {
    match client(&identity) {
        Some(client) => {
            let observer = RequestObserver::new(GuardedCalls { identity, guard });
            request.extensions_mut().insert(observer);
            http.serve(client, request).await
        }
        // The guard admits no such identity.
        None => StatusCode::FORBIDDEN.into_response(),
    }
}

/// Counts and records the calls of a request.
struct GuardedCalls {
    identity: Identity,
    guard: Arc<Guard>,
}

impl CallObserver for GuardedCalls {
    /// Counts a new call of a person as a message, and records it. The requests of a token count for its own rate.
    fn begin(
        &self,
        tool: &str,
        id: &ToolCallId,
        is_repeated: bool,
    ) -> Result<Box<dyn ObservedCall>, ToolFailure> {
        let Self { identity, guard } = self;
        if !is_repeated
            && identity.credential != Credential::Token
            && let Err(refusal) = guard.count_message(identity)
        {
            audit(identity, AuditAction::ToolCall, &format!("{tool} {id}"), refusal.code());
            return Err(ToolFailure::Overloaded { message: refusal.detail() });
        }
        Ok(Box::new(CallRecord::sent(identity, tool, id)))
    }
}

/// Returns the client with the rights of an identity. Without the right to talk, it has no agents.
pub(crate) fn client(identity: &Identity) -> Option<McpClient> {
    let client = McpClient::new(&identity.subject, filter(&identity.tools)).ok()?;
    let agents = identity.has(Right::Talk).then(|| filter(&identity.agents));
    Some(client.with_agents(agents.unwrap_or_else(|| filter(&NamePatterns::default()))))
}

fn filter(patterns: &NamePatterns) -> ToolFilter {
    ToolFilter { allow: patterns.iter().map(str::to_owned).collect(), deny: Vec::new() }
}

/// Returns the agents as tools, with their descriptions where they run.
async fn agents(parts: &GatewayParts) -> Vec<Arc<dyn Tool>> {
    let described = parts
        .agents
        .iter()
        .map(|agent| RemoteAgent::describe(parts.client.clone(), agent.clone(), DESCRIBE_TIMEOUT));
    let described: Vec<_> = described.collect();
    let agents = stream::iter(described).buffered(CONCURRENT_REQUESTS);
    agents.map(|agent| Arc::new(agent) as Arc<dyn Tool>).collect().await
}
