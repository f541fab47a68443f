//! The faces, composed into one router, and the server.

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, middleware::from_fn_with_state};
use rockbot_service::connections::{BoundedListener, Peer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    a2a::{self, Notifier},
    api, console,
    face::{Face, Route},
    guard::{Guard, GuardedRoute, admit, check, refuse_method, refuse_path},
    identity::FaceName,
    mcp::McpFace,
    openai,
    parts::GatewayParts,
    section::GatewaySection,
    tool_calls::ToolCalls,
};

/// Time after which a connection without a request is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The faces of a gateway, and the guard in front of them.
#[derive(Debug)]
pub struct Gateway {
    guard: Arc<Guard>,
    names: BTreeSet<FaceName>,
    faces: Vec<Face>,
    /// Delivers push notifications until the server stops.
    notifier: Option<Notifier>,
    /// Calls by MCP clients and by hand, which end when the server stops.
    mcp: Option<McpFace>,
    tool_calls: Option<Arc<ToolCalls>>,
    /// Cancelled when the server stops: streams end then.
    closing: CancellationToken,
}

impl Gateway {
    /// Composes the faces of this crate that the section names.
    #[must_use]
    pub fn new(section: &GatewaySection, parts: &GatewayParts, guard: Arc<Guard>) -> Self {
        let closing = CancellationToken::new();
        let mut gateway = Self {
            guard,
            names: section.faces.clone(),
            faces: Vec::new(),
            notifier: None,
            mcp: None,
            tool_calls: parts.tool_calls.clone(),
            closing,
        };
        let mut console = console::routes(&gateway.guard, parts);
        console.extend(api::routes(parts, &gateway.closing));
        let openai = openai::routes(parts);
        let (a2a, notifier) = a2a::routes(parts, &gateway.guard);
        gateway.notifier = notifier.filter(|_| gateway.names.contains(&FaceName::A2a));
        gateway
            .with_face(Face { name: FaceName::Console, routes: console })
            .with_face(Face { name: FaceName::Openai, routes: openai })
            .with_face(Face { name: FaceName::A2a, routes: a2a })
    }

    /// Adds a face, if the section names it.
    #[must_use]
    pub fn with_face(mut self, face: Face) -> Self {
        if self.names.contains(&face.name) {
            self.faces.push(face);
        }
        self
    }

    /// Adds the face for MCP clients, if the section names it.
    #[must_use]
    pub fn with_mcp(self, mcp: McpFace) -> Self {
        let face = mcp.face(&self.guard);
        let gateway = self.with_face(face);
        Self { mcp: Some(mcp), ..gateway }
    }

    /// Returns all routes, with the face that each belongs to.
    pub fn routes(&self) -> impl Iterator<Item = (FaceName, &Route)> {
        self.faces.iter().flat_map(|face| face.routes.iter().map(|route| (face.name, route)))
    }

    /// Returns the router: every route behind the guard.
    pub fn into_router(self) -> Router {
        let Self { guard, faces, .. } = self;
        let mut router = Router::new();
        for Face { name: face, routes } in faces {
            for Route { path, access, limits, handler, .. } in routes {
                let guarded = GuardedRoute { guard: guard.clone(), face, path, access, limits };
                let handler = handler.route_layer(from_fn_with_state(guarded, check));
                router = router.route(path, handler);
            }
        }
        router
            .fallback(refuse_path)
            .method_not_allowed_fallback(refuse_method)
            .layer(from_fn_with_state(guard, admit))
    }
}

/// A listening server.
#[derive(Debug)]
pub struct GatewayServer {
    listener: TcpListener,
    address: SocketAddr,
    max_connections: usize,
}

impl GatewayServer {
    /// Starts to listen at the address of the section.
    ///
    /// # Errors
    /// When the address is in use or not local.
    pub async fn bind(section: &GatewaySection) -> io::Result<Self> {
        let listener = TcpListener::bind(section.address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, max_connections: section.max_connections })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled; then rejects further requests and calls of tools, and returns when the open
    /// ones and the attempts to deliver push notifications have ended. After `drain`, open requests are dropped,
    /// and running calls are cancelled.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(
        self,
        mut gateway: Gateway,
        stop: CancellationToken,
        drain: Duration,
    ) -> io::Result<()> {
        let listener = BoundedListener::new(self.listener, self.max_connections, IDLE_TIMEOUT);
        let (stopped, closing) = (stop.clone(), gateway.closing.clone());
        let notifier = gateway.notifier.take();
        let (mcp, tool_calls) = (gateway.mcp.take(), gateway.tool_calls.take());
        let service = gateway.into_router().into_make_service_with_connect_info::<Peer>();
        let server = axum::serve(listener, service).with_graceful_shutdown(async move {
            stopped.cancelled().await;
            closing.cancel();
        });
        let serving = async {
            tokio::select! {
                served = server => served,
                () = drain_timeout(&stop, drain) => {
                    warn!("drain timed out with open requests");
                    Ok(())
                }
            }
        };
        let stopping = async {
            stop.cancelled().await;
            // Ends the streams and calls, which the server waits for.
            let stop_mcp = async {
                if let Some(mcp) = &mcp {
                    mcp.stop(drain).await;
                }
            };
            let stop_calls = async {
                if let Some(calls) = &tool_calls {
                    calls.stop(drain).await;
                }
            };
            tokio::join!(stop_mcp, stop_calls);
            Ok::<_, io::Error>(())
        };
        let notifying = async {
            if let Some(notifier) = notifier {
                notifier.run(&stop, drain).await;
            }
            Ok(())
        };
        tokio::try_join!(serving, stopping, notifying)?;
        Ok(())
    }
}

async fn drain_timeout(stop: &CancellationToken, drain: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain).await;
}
