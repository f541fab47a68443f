//! The tools over standard input and output.

use std::{convert::Infallible, time::Duration};

use rmcp::{ServiceExt, service::ServerInitializeError};
use tokio_util::sync::CancellationToken;

use crate::account_server::AccountServer;

/// Serves the parent process until it closes the input or `stop` is cancelled.
///
/// On `stop`, rejects further calls and waits up to `drain` for the running ones. When the input closes, `rmcp` waits
/// up to 5 s for the running calls and sends their results; this limit is fixed, and `drain` does not apply.
///
/// # Errors
/// When the client does not follow the protocol's handshake.
pub async fn serve_stdio(
    server: AccountServer,
    stop: CancellationToken,
    drain: Duration,
) -> Result<(), Box<ServerInitializeError>> {
    let started = tokio::select! {
        started = server.clone().serve(rmcp::transport::stdio()) => started,
        () = stop.cancelled() => return Ok(()),
    };
    let running = match started {
        Ok(running) => running,
        // The client closed the connection without a handshake.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Box::new(error)),
    };
    let ending = running.cancellation_token();
    // Never completes: the session ends through `ending`, after its last responses were sent.
    let stopping = async {
        stop.cancelled().await;
        if tokio::time::timeout(drain, server.drained()).await.is_err() {
            tracing::warn!("drain timed out with running calls");
        }
        ending.cancel();
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        ended = running.waiting() => tracing::debug!(?ended, "session ended"),
        never = stopping => match never {},
    }
    Ok(())
}
