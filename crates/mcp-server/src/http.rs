//! The fleet over streamable HTTP.
//!
//! Every client has its own sessions: the id of a session grants nothing to another client. Requests of revision
//! 2026-07-28 have no session, so any process can serve them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodRouter, any},
};
use parking_lot::Mutex;
use rmcp::{
    model::ProtocolVersion,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::SessionConfig,
    },
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use tracing::warn;

use crate::{
    client::McpClient, fleet::McpFleet, handler::FleetServer, http_sessions::HttpSessions,
    sent_events::SentEvents,
};

/// Largest request, in bytes. Arguments have at most 1 MiB.
const MAX_REQUEST_BYTES: usize = 2 * 1024 * 1024;
/// Clients that are remembered at the same time, at most.
const MAX_CLIENTS: usize = 1024;

/// Options of [`McpHttp`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// Accepted `Host` headers. Empty: the server in front has checked them.
    pub allowed_hosts: Vec<String>,
    /// Accepted web origins, each with scheme and port. `None`: the server in front has checked them.
    pub allowed_origins: Option<Vec<String>>,
    /// Maximum number of sessions of a client. Default 64.
    pub sessions: usize,
    /// Time without messages after which a session ends. Never shorter than the longest call. Default 30 min.
    pub session_idle: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_origins: None,
            sessions: 64,
            session_idle: Duration::from_secs(1800),
        }
    }
}

/// Serves MCP clients over HTTP. Each request must have an [`McpClient`] in its extensions.
pub struct McpHttp {
    fleet: Arc<McpFleet>,
    options: HttpOptions,
    clients: Mutex<HashMap<Arc<str>, ClientSessions>>,
    events: Arc<SentEvents>,
    stop: CancellationToken,
}

type ClientService = StreamableHttpService<FleetServer, HttpSessions>;

/// The sessions of a client.
#[derive(Clone)]
struct ClientSessions {
    client: McpClient,
    service: ClientService,
    sessions: Arc<HttpSessions>,
    stop: CancellationToken,
}

impl McpHttp {
    /// Creates a service without sessions.
    #[must_use]
    pub fn new(fleet: Arc<McpFleet>, options: HttpOptions) -> Arc<Self> {
        let stop = CancellationToken::new();
        let clients = Mutex::default();
        let events = SentEvents::new(longest_call(&fleet));
        Arc::new(Self { fleet, options, clients, events, stop })
    }

    /// Returns the methods of the endpoint.
    #[must_use]
    pub fn methods() -> Vec<Method> {
        vec![Method::GET, Method::POST, Method::DELETE]
    }

    /// Returns the endpoint, for any path.
    pub fn endpoint(self: &Arc<Self>) -> MethodRouter {
        any(serve).with_state(self.clone())
    }

    /// Returns a router with the endpoint at `/mcp`.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new().route("/mcp", self.endpoint())
    }

    /// Serves a request of `client`.
    pub async fn serve(&self, client: McpClient, request: Request) -> Response {
        let Some(ClientSessions { mut service, sessions, .. }) = self.sessions_of(&client) else {
            return busy("too many clients");
        };
        if may_open_session(request.method(), request.headers())
            && sessions.count().await >= self.options.sessions
        {
            return busy("too many sessions of this client");
        }
        match service.call(request).await {
            Ok(response) => response.map(Body::new),
            Err(never) => match never {},
        }
    }

    /// Rejects further calls, waits for the running ones until `limit`, and ends all sessions.
    pub async fn stop(&self, limit: Duration) {
        self.fleet.stop(limit).await;
        self.stop.cancel();
    }

    /// Returns the sessions of a client, and ends those that it opened with other rights. `None` when there are too
    /// many clients.
    fn sessions_of(&self, client: &McpClient) -> Option<ClientSessions> {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(client.name()) {
            if known.client == *client {
                return Some(known.clone());
            }
            known.stop.cancel();
        } else if clients.len() >= MAX_CLIENTS {
            // Requests without a session do not need the entry while they run.
            clients.retain(|_, known| !known.sessions.is_empty());
            if clients.len() >= MAX_CLIENTS {
                warn!(limit = MAX_CLIENTS, "too many clients with MCP sessions; request rejected");
                return None;
            }
        }
        let sessions = self.open(client.clone());
        clients.insert(client.name().clone(), sessions.clone());
        Some(sessions)
    }

    fn open(&self, client: McpClient) -> ClientSessions {
        let stop = self.stop.child_token();
        let mut config = SessionConfig::default();
        config.keep_alive = Some(self.options.session_idle.max(longest_call(&self.fleet)));
        let sessions = Arc::new(HttpSessions::new(config, self.events.of_client()));
        let mut config = StreamableHttpServerConfig::default()
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_REQUEST_BYTES)
            .with_allowed_hosts(&self.options.allowed_hosts)
            .with_cancellation_token(stop.clone());
        if let Some(origins) = &self.options.allowed_origins {
            config = config.with_allowed_origins(origins).enforce_origin_validation();
        }
        let (fleet, served) = (self.fleet.clone(), client.clone());
        let server = move || Ok(FleetServer::new(fleet.clone(), served.clone(), None));
        let service = StreamableHttpService::new(server, sessions.clone(), config);
        ClientSessions { client, service, sessions, stop }
    }
}

impl Drop for McpHttp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl std::fmt::Debug for McpHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpHttp")
            .field("options", &self.options)
            .field("clients", &self.clients.lock().len())
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

async fn serve(
    State(server): State<Arc<McpHttp>>,
    client: Option<Extension<McpClient>>,
    request: Request,
) -> Response {
    match client {
        Some(Extension(client)) => server.serve(client, request).await,
        None => {
            let problem = Json(json!({"error": "authentication is required"}));
            (StatusCode::UNAUTHORIZED, problem).into_response()
        }
    }
}

fn longest_call(fleet: &McpFleet) -> Duration {
    fleet.section.max_timeout + Duration::from_secs(60)
}

/// Returns whether a request can open a session: one of an older revision, without a session.
fn may_open_session(method: &Method, headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    method == Method::POST
        && !headers.contains_key("mcp-session-id")
        && version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str())
}

fn busy(problem: &'static str) -> Response {
    let body = Json(json!({"error": format!("{problem}; end one of its sessions or try again")}));
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_requests_without_a_session_open_one() {
        let opens = |method: Method, fields: &[(&'static str, &'static str)]| {
            let headers = fields.iter().map(|&(name, value)| {
                (header::HeaderName::from_static(name), header::HeaderValue::from_static(value))
            });
            may_open_session(&method, &headers.collect())
        };
        assert!(opens(Method::POST, &[]));
        assert!(opens(Method::POST, &[("mcp-protocol-version", "2025-11-25")]));
        assert!(!opens(Method::POST, &[("mcp-protocol-version", "2026-07-28")]));
        assert!(!opens(Method::POST, &[("mcp-session-id", "a")]));
        assert!(!opens(Method::GET, &[]));
    }
}
