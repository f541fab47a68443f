//! The admin port: whether the process lives, whether it is ready, and what it counts.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 as long as the process answers at all: restart it when it does not |
//! | `/readyz` | 200 when it takes work, 503 when not, with what is missing, as JSON |
//! | `/metrics` | its counts, in Prometheus' text format |
//!
//! It tells nothing secret and takes no commands; still, keep it inside the cluster.

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

/// Connections at once.
const MAX_CONNECTIONS: usize = 64;

/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(30);

/// `[admin]`: where a process tells how it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSection {
    /// Where to listen, such as `127.0.0.1:9090`, or `0.0.0.0:9090` in a container; port 0 takes a
    /// free one. Nowhere when absent.
    pub address: Option<SocketAddr>,
}

/// The admin port, until dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Admin {
    /// Listens, and answers from now on.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub async fn start(address: SocketAddr, health: Health) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let listener = BoundedListener::new(listener, MAX_CONNECTIONS, IDLE);
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(counts))
            .with_state(health);
        info!(%address, "the admin port listens");
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                error!(%error, "the admin port is closed");
            }
        });
        Ok(Self { address, serving })
    }

    /// Where it listens.
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

async fn counts(State(health): State<Health>) -> Response {
    match health.counts().await {
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
    use crate::telemetry::Metrics;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_probe_learns_whether_the_process_lives_and_what_it_lacks() {
        let metrics = Metrics::start("rockbot-test", "0");
        let health = Health::new(CancellationToken::new()).counted(metrics);
        health.needs("store", || Box::pin(std::future::ready(Err("it is full".to_owned()))));
        let address = ([127, 0, 0, 1], 0).into();
        let admin = Admin::start(address, health.clone()).await.unwrap();
        let alive = get(admin.address(), "/healthz").await;
        assert!(alive.starts_with("HTTP/1.1 200") && alive.ends_with("ok\n"), "{alive}");
        health.serving();
        let lacking = get(admin.address(), "/readyz").await;
        assert!(lacking.starts_with("HTTP/1.1 503"), "{lacking}");
        let told = r#"{"ready":false,"stage":"serving","needs":{"store":"it is full"}}"#;
        assert!(lacking.ends_with(told), "{lacking}");
        health.needs("store", || Box::pin(std::future::ready(Ok(()))));
        let ready = get(admin.address(), "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let counts = get(admin.address(), "/metrics").await;
        assert!(counts.contains("version=0.0.4") && counts.contains("rockbot_ready 1"), "{counts}");
        assert!(get(admin.address(), "/secrets").await.starts_with("HTTP/1.1 404"));
    }
}
