//! The tools over streamable HTTP.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use rockbot_service::connections::BoundedListener;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::account_server::AccountServer;

/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 256;
/// The largest request, in bytes. A tool call has a few hundred.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// The time for receiving a request, in addition to the time limit of the tool.
const REQUEST_SLACK: Duration = Duration::from_secs(10);

/// Options of the HTTP server.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Accepted `Host` headers.
    pub allowed_hosts: Vec<String>,
    /// Accepted web origins, each with scheme and port.
    pub allowed_origins: Vec<String>,
    /// The time limit of a tool.
    pub call: Duration,
    /// The time limit for running requests at shutdown.
    pub drain: Duration,
}

/// A listening server: MCP at `/mcp`, and `/healthz`.
///
/// It has no sessions: every request is independent, so any replica can serve it.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Starts to listen; port 0 selects a free port.
    ///
    /// # Errors
    /// When the address is in use or not local.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled; then rejects further requests, and returns when the running ones
    /// have finished, or after [`HttpOptions::drain`].
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(
        self,
        server: AccountServer,
        options: HttpOptions,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let request = options.call + REQUEST_SLACK;
        let end = CancellationToken::new();
        let _end_on_drop = end.clone().drop_guard();
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_REQUEST_BYTES)
            .with_allowed_hosts(options.allowed_hosts)
            .with_allowed_origins(options.allowed_origins)
            .enforce_origin_validation()
            .with_cancellation_token(end);
        let sessions = Arc::new(NeverSessionManager::default());
        let mcp = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
        let router = Router::new()
            .route_service("/mcp", mcp)
            .layer(middleware::from_fn_with_state(request, limit_time))
            .route("/healthz", get(async || "ok"));
        let listener = BoundedListener::new(self.listener, MAX_CONNECTIONS, request * 2);
        let stopped = stop.clone();
        let serving = axum::serve(listener, router)
            .with_graceful_shutdown(async move { stopped.cancelled().await });
        tokio::select! {
            served = serving => served,
            () = drain_timeout(&stop, options.drain) => {
                tracing::warn!("drain timed out with open requests");
                Ok(())
            }
        }
    }
}

/// Ends a request that takes too long, because of the client or of OpenRouter.
async fn limit_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

async fn drain_timeout(stop: &CancellationToken, drain: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain).await;
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::OpenRouter;

    #[tokio::test(start_paused = true)]
    async fn incomplete_request_times_out() {
        rockbot_service::tls::install_tls_provider();
        let nowhere = "http://127.0.0.1:9".parse().unwrap();
        let call = Duration::from_secs(20);
        let openrouter = OpenRouter::new(nowhere, SecretString::from("k"), call, 1024).unwrap();
        let options = HttpOptions {
            allowed_hosts: vec!["localhost".to_owned()],
            allowed_origins: Vec::new(),
            call,
            drain: call,
        };
        let server = HttpServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let mut client = TcpStream::connect(server.address()).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(server.serve(AccountServer::new(openrouter), options, stop));

        let half = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    accept: application/json, text/event-stream\r\ncontent-length: 99\r\n\r\n{";
        client.write_all(half.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).await.unwrap();
        assert_eq!(status, *b"HTTP/1.1 408");
    }
}
