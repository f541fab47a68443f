//! HTTP with SSE of the 2024-11-05 revision: a standing event stream carries the server's messages, and
//! the client posts its messages to the URL in the first event.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rockbot_egress::{GuardedClient, RedirectRefused};
use rockbot_sse::Event;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::event_stream::{EventStream, event_text, has_message};
use super::failure::ConnectError;
use super::peer::{BodyKind, Peer, ReadTimeout, body_kind, read_within, status_error};
use super::remote_server::RemoteServer;
use crate::frame;

/// The time limit for opening the stream and receiving its first event.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Received messages that are buffered before the stream is no longer read.
const BUFFERED_MESSAGES: usize = 64;
/// The longest URL that messages are posted to, in bytes.
const MAX_ENDPOINT_BYTES: usize = 8 * 1024;
/// The largest response to a post that is read, so that its connection can be reused, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The time limit for reading that response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the stream, and waits for the URL to post to.
///
/// # Errors
/// When the session cannot be opened. The connection is closed then.
pub async fn connect(server: &RemoteServer) -> Result<SseTransport, ConnectError> {
    server.resolve().await?;
    let opened = timeout(OPEN_TIMEOUT, open(server)).await;
    let (events, endpoint) = opened.unwrap_or(Err(ConnectError::TimedOut))?;
    let poster = Poster { peer: Peer::new(server, ReadTimeout::Idle)?, endpoint };
    let (sender, incoming) = mpsc::channel(BUFFERED_MESSAGES);
    let stream = AbortOnDropHandle::new(tokio::spawn(receive_all(events, sender)));
    Ok(SseTransport { poster: Some(Arc::new(poster)), incoming, stream })
}

/// A session over HTTP with SSE. It ends when its stream does, and is closed when dropped.
pub struct SseTransport {
    /// `None` after the transport is closed.
    poster: Option<Arc<Poster>>,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    stream: AbortOnDropHandle<()>,
}

impl Transport<RoleClient> for SseTransport {
    type Error = ConnectError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), ConnectError>> + Send + 'static {
        let poster = self.poster.clone();
        async move { poster.ok_or(ConnectError::Closed)?.post(&message).await }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), ConnectError> {
        self.poster = None;
        self.incoming.close();
        self.stream.abort();
        // The join error is the expected abort.
        let _ = (&mut self.stream).await;
        Ok(())
    }
}

struct Poster {
    peer: Peer,
    endpoint: Url,
}

impl Poster {
    async fn post(&self, message: &ClientJsonRpcMessage) -> Result<(), ConnectError> {
        let body =
            serde_json::to_vec(message).map_err(|error| ConnectError::Connection(error.into()))?;
        let post = self.peer.send(|client| {
            let request = client.request(Method::POST, self.endpoint.clone())?;
            Ok(request.header(CONTENT_TYPE, "application/json").body(body.clone()))
        });
        let response = post.await?;
        if !response.status().is_success() {
            return Err(status_error(&response));
        }
        // The message is delivered; the response does not matter.
        let _ = timeout(RESPONSE_TIMEOUT, read_within(response, MAX_RESPONSE_BYTES)).await;
        Ok(())
    }
}

async fn open(server: &RemoteServer) -> Result<(EventStream, Url), ConnectError> {
    let peer = Peer::new(server, ReadTimeout::Unlimited)?;
    let get = |client: &GuardedClient| {
        let request = client.request(Method::GET, server.url.clone())?;
        Ok(request.header(ACCEPT, "text/event-stream"))
    };
    let response = peer.send(get).await?;
    if !response.status().is_success() {
        return Err(status_error(&response));
    }
    if body_kind(&response) != BodyKind::Events {
        return Err(ConnectError::Malformed("its response is not an event stream"));
    }
    let mut events = EventStream::new(response);
    let first = events.next().await?;
    let first = first.ok_or(ConnectError::Malformed("its stream ended without an event"))?;
    let endpoint = endpoint(server, &first)?;
    Ok((events, endpoint))
}

/// Returns the URL to post to. It must have the same origin, because the headers are sent there too.
fn endpoint(server: &RemoteServer, first: &Event) -> Result<Url, ConnectError> {
    let is_endpoint = first.name.as_deref() == Some("endpoint");
    let address =
        event_text(first).ok().filter(|text| is_endpoint && text.len() <= MAX_ENDPOINT_BYTES);
    let url = address.and_then(|address| server.url.join(address.trim()).ok());
    let url = url.ok_or(ConnectError::Malformed("its first event names no endpoint"))?;
    if url.origin() != server.url.origin() {
        return Err(RedirectRefused::ForeignOrigin.into());
    }
    server.policy.check(&url)?;
    Ok(url)
}

async fn receive_all(mut events: EventStream, incoming: mpsc::Sender<ServerJsonRpcMessage>) {
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "MCP event stream broke");
                return;
            }
        };
        if let Some(message) = message(&event)
            && incoming.send(message).await.is_err()
        {
            return;
        }
    }
}

/// Parses the message of an event. An unreadable response becomes an error reply for its request.
fn message(event: &Event) -> Option<ServerJsonRpcMessage> {
    if !has_message(event) {
        return None;
    }
    match event_text(event) {
        Ok(text) => frame::read(text.as_bytes())
            .or_else(|reason| frame::error_reply(text.as_bytes(), reason).ok_or(reason)),
        Err((prefix, reason)) => frame::error_reply(prefix, reason).ok_or(reason),
    }
    .inspect_err(|error| tracing::debug!(%error, "unreadable MCP message dropped"))
    .ok()
}
