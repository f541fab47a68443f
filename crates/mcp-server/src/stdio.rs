//! The fleet over standard input and output.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rmcp::{
    service::{ServerInitializeError, serve_server_with_ct},
    transport::{async_rw::AsyncRwTransport, io::stdio_pipes},
};
use rockbot_contracts::InstanceId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{client::McpClient, fleet::McpFleet, handler::FleetServer};

/// Longest message of the client, in bytes. Arguments have at most 1 MiB.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Error of the connection to the parent process.
#[derive(Debug, thiserror::Error)]
#[error("the client does not speak MCP: {source}; start this command from an MCP client")]
pub struct StdioError {
    #[source]
    source: Box<ServerInitializeError>,
}

/// Serves the parent process until it closes the input or `stop` is cancelled. Then running calls may finish, within
/// 5 s or within `drain`, and no further ones are accepted. Nothing else may write to standard output.
///
/// # Errors
/// When the client does not follow the protocol's handshake.
///
/// # Cancellation
/// Dropping the future cancels running calls.
pub fn serve_stdio(
    fleet: Arc<McpFleet>,
    client: McpClient,
    stop: CancellationToken,
    drain: Duration,
) -> BoxFuture<'static, Result<(), StdioError>> {
    // Opens the pipes within the runtime, when the future is polled.
    Box::pin(async move {
        let (read, write) = stdio_pipes();
        let served = serve_streams(fleet.clone(), client, read, write, stop, drain).await;
        // The handlers learn of the end of the calls before the bus is closed.
        fleet.stop(Duration::ZERO).await;
        served
    })
}

/// Serves a client over a pair of streams until it closes its end. Its running calls may finish within 5 s. When `stop`
/// is cancelled, it stops the fleet, and returns when running calls have finished, or after `drain`.
///
/// # Errors
/// When the client does not follow the protocol's handshake.
///
/// # Cancellation
/// Dropping the future cancels the running calls of this client.
pub async fn serve_streams(
    fleet: Arc<McpFleet>,
    client: McpClient,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
    drain: Duration,
) -> Result<(), StdioError> {
    // Ids of requests are unique within a connection only.
    let session = InstanceId::generate().to_string();
    let server = FleetServer::new(fleet.clone(), client, Some(session));
    let transport =
        AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_MESSAGE_BYTES);
    let end = CancellationToken::new();
    let _end_on_drop = end.clone().drop_guard();
    let started = tokio::select! {
        started = serve_server_with_ct(server, transport, end.clone()) => started,
        () = stop.cancelled() => return Ok(()),
    };
    let running = match started {
        Ok(running) => running,
        // The client closed the connection without a handshake.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(source) => return Err(StdioError { source: Box::new(source) }),
    };
    let stopping = async {
        stop.cancelled().await;
        fleet.stop(drain).await;
        end.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = running.waiting() => tracing::debug!(?ended, "session ended"),
        () = stopping => {}
    }
    Ok(())
}
