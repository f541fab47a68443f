//! The tools over standard input and output.

use std::time::Duration;

use rmcp::{ServiceExt, service::ServerInitializeError};
use tokio_util::sync::CancellationToken;

use crate::account_server::AccountServer;

/// Serves whoever started this process, until its end of the input is closed or `stop` is
/// cancelled; then takes no more calls and waits for those under way, at most for the time `drain`.
///
/// # Errors
/// When the client does not open the conversation as the protocol says.
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
        // Whoever started us has left without a word.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Box::new(error)),
    };
    let ending = running.cancellation_token();
    let stopping = async {
        stop.cancelled().await;
        if tokio::time::timeout(drain, server.drained()).await.is_err() {
            tracing::warn!("stopped before every call was answered");
        }
        ending.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = running.waiting() => tracing::debug!(?ended, "the conversation is over"),
        () = stopping => {}
    }
    Ok(())
}
