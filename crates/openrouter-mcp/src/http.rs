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

/// Connections at once.
const MAX_CONNECTIONS: usize = 256;
/// The largest request, in bytes. A call of a tool has a few hundred.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// What a request may take on top of OpenRouter's answer: its own way in.
const REQUEST_SLACK: Duration = Duration::from_secs(10);

/// Who may come, and for how long.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Names in the `Host` header.
    pub allowed_hosts: Vec<String>,
    /// Web pages, each with scheme and port.
    pub allowed_origins: Vec<String>,
    /// The longest time that a tool takes.
    pub call: Duration,
    /// How long a stop waits for what is under way.
    pub drain: Duration,
}

/// A server that listens: MCP at `/mcp`, and `/healthz`.
///
/// It keeps no sessions: every request stands alone, so any replica can answer it.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Starts to listen; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled; then takes no more requests, and returns when those under
    /// way are answered, or after [`HttpOptions::drain`].
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
        let _at_the_end = end.clone().drop_guard();
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
            .layer(middleware::from_fn_with_state(request, in_time))
            .route("/healthz", get(async || "ok"));
        let listener = BoundedListener::new(self.listener, MAX_CONNECTIONS, request * 2);
        let stopped = stop.clone();
        let serving = axum::serve(listener, router)
            .with_graceful_shutdown(async move { stopped.cancelled().await });
        tokio::select! {
            served = serving => served,
            () = too_late(&stop, options.drain) => {
                tracing::warn!("stopped before every request was answered");
                Ok(())
            }
        }
    }
}

/// Ends a request that takes too long, whoever is slow: its sender or OpenRouter.
async fn in_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

async fn too_late(stop: &CancellationToken, drain: Duration) {
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
    async fn a_request_that_does_not_come_to_its_end_is_ended() {
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
