//! The admin port: liveness, readiness and metrics of a process.
//!
//! | path | response |
//! |---|---|
//! | `/healthz` | 200 while the process responds at all: restart it otherwise |
//! | `/readyz` | 200 when the process is ready for work, else 503; the checks as JSON |
//! | `/metrics` | metrics in Prometheus' text format |
//!
//! It exposes no secrets and accepts no commands; still, keep it inside the cluster.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use tokio::{net::TcpListener, task::JoinHandle};
use tracing::{error, info};

use crate::{
    connections::BoundedListener,
    health::{Health, Readiness},
};

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;

/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// `[admin]`: where a process serves its health and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSection {
    /// Address to listen on, such as `127.0.0.1:9090`, or `0.0.0.0:9090` in a container; port 0 takes
    /// a free port. The process does not listen when absent.
    pub address: Option<SocketAddr>,
}

/// The admin server, until dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Admin {
    /// Starts to listen and to serve.
    ///
    /// # Errors
    /// When the address is in use or does not belong to this machine.
    pub async fn start(address: SocketAddr, health: Health) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let listener = BoundedListener::new(listener, MAX_CONNECTIONS, IDLE_TIMEOUT);
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(health);
        info!(%address, "admin port listening");
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                error!(%error, "admin server failed");
            }
        });
        Ok(Self { address, serving })
    }

    /// Returns the address the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    match health.metrics_text().await {
        Some(text) => {
            ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn readyz(State(health): State<Health>) -> (StatusCode, Json<Readiness>) {
    let readiness = health.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{healthcheck::TIMEOUT as PROBE_TIMEOUT, telemetry::Metrics};

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn probes_report_liveness_readiness_and_failed_checks() {
        let metrics = Metrics::start("rockbot-test", "0");
        let health = Health::new(CancellationToken::new()).with_metrics(metrics);
        health.needs("store", || Box::pin(std::future::ready(Err("it is full".to_owned()))));
        let address = ([127, 0, 0, 1], 0).into();
        let admin = Admin::start(address, health.clone()).await.unwrap();
        let alive = get(admin.address(), "/healthz").await;
        assert!(alive.starts_with("HTTP/1.1 200") && alive.ends_with("ok\n"), "{alive}");
        health.serving();
        let unready = get(admin.address(), "/readyz").await;
        assert!(unready.starts_with("HTTP/1.1 503"), "{unready}");
        let body = r#"{"ready":false,"stage":"serving","needs":{"store":"it is full"}}"#;
        assert!(unready.ends_with(body), "{unready}");
        health.needs("store", || Box::pin(std::future::ready(Ok(()))));
        let ready = get(admin.address(), "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let metrics = get(admin.address(), "/metrics").await;
        assert!(metrics.contains("version=0.0.4"), "{metrics}");
        assert!(metrics.contains("rockbot_ready 1"), "{metrics}");
        assert!(get(admin.address(), "/secrets").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn half_sent_requests_do_not_block_probes() {
        let health = Health::new(CancellationToken::new());
        let admin = Admin::start(([127, 0, 0, 1], 0).into(), health).await.unwrap();
        let mut half_sent = Vec::new();
        for _ in 0..MAX_CONNECTIONS + 10 {
            let mut stream = TcpStream::connect(admin.address()).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
            half_sent.push(stream);
        }
        let alive = tokio::time::timeout(IDLE_TIMEOUT / 2, get(admin.address(), "/healthz")).await;
        assert!(alive.unwrap().starts_with("HTTP/1.1 200"));
    }
    // 300 clients reconnect as soon as they are replaced, and each time send half a request.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn reconnecting_half_sent_requests_do_not_block_probes() {
        const CLIENTS: usize = 300;
        const PROBES: usize = 5;
        let health = Health::new(CancellationToken::new());
        let admin = Admin::start(([127, 0, 0, 1], 0).into(), health).await.unwrap();
        let address = admin.address();
        let (connected, mut connections) = tokio::sync::watch::channel(0);
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let connected = connected.clone();
            clients.spawn(async move {
                loop {
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await;
                    connected.send_modify(|count| *count += 1);
                    // Until the server closes the connection.
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
        connections.wait_for(|count| *count > CLIENTS).await.unwrap();
        for _ in 0..PROBES {
            // On a busy machine a probe may be late; one late probe restarts no process.
            let alive = tokio::time::timeout(3 * PROBE_TIMEOUT, get(address, "/healthz")).await;
            assert!(alive.expect("a response in time").starts_with("HTTP/1.1 200"));
        }
    }
}
