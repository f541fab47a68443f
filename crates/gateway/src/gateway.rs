//! The faces, composed into one router, and the server.

use std::{io, net::SocketAddr, time::Duration};

use axum::Router;
use rockbot_service::connections::BoundedListener;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    face::{Face, Route},
    identity::FaceName,
    parts::GatewayParts,
    section::GatewaySection,
};

/// Time after which a connection without a request is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The faces of a gateway.
#[derive(Debug)]
pub struct Gateway {
    faces: Vec<Face>,
}

impl Gateway {
    /// Composes the faces of the section that this crate has.
    #[must_use]
    pub fn new(_section: &GatewaySection, _parts: &GatewayParts) -> Self {
        Self { faces: Vec::new() }
    }

    /// Adds a face.
    #[must_use]
    pub fn with_face(mut self, face: Face) -> Self {
        self.faces.push(face);
        self
    }

    /// Returns all routes, with the face that each belongs to.
    pub fn routes(&self) -> impl Iterator<Item = (FaceName, &Route)> {
        self.faces.iter().flat_map(|face| face.routes.iter().map(|route| (face.name, route)))
    }

    /// Returns the router.
    #[must_use]
    pub fn into_router(self) -> Router {
        let routes = self.faces.into_iter().flat_map(|face| face.routes);
        routes.fold(Router::new(), |router, route| router.route(route.path, route.handler))
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

    /// Serves until `stop` is cancelled; then rejects further requests, and returns when the open ones have
    /// ended, or after `drain`.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(
        self,
        gateway: Gateway,
        stop: CancellationToken,
        drain: Duration,
    ) -> io::Result<()> {
        let listener = BoundedListener::new(self.listener, self.max_connections, IDLE_TIMEOUT);
        let stopped = stop.clone();
        let serving = axum::serve(listener, gateway.into_router())
            .with_graceful_shutdown(async move { stopped.cancelled().await });
        tokio::select! {
            served = serving => served,
            () = drain_timeout(&stop, drain) => {
                warn!("drain timed out with open requests");
                Ok(())
            }
        }
    }
}

async fn drain_timeout(stop: &CancellationToken, drain: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain).await;
}
