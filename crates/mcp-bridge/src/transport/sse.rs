//! The HTTP with SSE of the protocol's 2024-11-05 revision: one standing stream of events brings
//! the server's messages, and ours are posted to the address that its first event names.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rockbot_sse::Event;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::dial::{Patience, RedirectRefused};
use super::event_stream::{EventStream, event_text, has_message};
use super::failure::ConnectError;
use super::peer::{Kind, Peer, failure_of, kind, read_body};
use super::remote_server::RemoteServer;
use crate::frame;

/// How long the stream and its first event may take.
const OPENING: Duration = Duration::from_secs(30);
/// How many messages wait for whoever takes them, before the stream itself waits.
const WAITING: usize = 64;
/// The longest address that messages are posted to.
const MAX_ENDPOINT_BYTES: usize = 8 * 1024;
/// What is read of the answer to a post, so that its connection can be used again.
const MAX_RECEIPT_BYTES: usize = 64 * 1024;
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the stream, and waits for the address to post to.
///
/// # Errors
/// Says why there is no session. Nothing of it stays open then.
pub async fn connect(server: &RemoteServer) -> Result<SseTransport, ConnectError> {
    server.find().await?;
    let opened = timeout(OPENING, open(server)).await;
    let (events, endpoint) = opened.unwrap_or(Err(ConnectError::TimedOut))?;
    let poster = Poster { peer: Peer::new(server, Patience::Answer)?, endpoint };
    let (sender, incoming) = mpsc::channel(WAITING);
    let stream = AbortOnDropHandle::new(tokio::spawn(receive_all(events, sender)));
    Ok(SseTransport { poster: Some(Arc::new(poster)), incoming, stream })
}

/// A session over HTTP with SSE. It ends when its stream does, and is closed when dropped.
pub struct SseTransport {
    /// None once it is closed.
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
        // Aborted is what it should be.
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
        let post = self.peer.send(&self.endpoint, |client| {
            let request = client.post(self.endpoint.clone());
            request.header(CONTENT_TYPE, "application/json").body(body.clone())
        });
        let receipt = post.await?;
        if !receipt.status().is_success() {
            return Err(failure_of(&receipt));
        }
        // The message is delivered, whatever becomes of the receipt.
        let _ = timeout(RECEIPT_TIMEOUT, read_body(receipt, MAX_RECEIPT_BYTES)).await;
        Ok(())
    }
}

async fn open(server: &RemoteServer) -> Result<(EventStream, Url), ConnectError> {
    let peer = Peer::new(server, Patience::Standing)?;
    let get = |client: &reqwest::Client| {
        client.get(server.url.clone()).header(ACCEPT, "text/event-stream")
    };
    let response = peer.send(&server.url, get).await?;
    if !response.status().is_success() {
        return Err(failure_of(&response));
    }
    if kind(&response) != Kind::Events {
        return Err(ConnectError::Malformed("its stream has no events"));
    }
    let mut events = EventStream::new(response);
    let first = events.next().await?;
    let first = first.ok_or(ConnectError::Malformed("its stream ended at once"))?;
    let endpoint = endpoint(server, &first)?;
    Ok((events, endpoint))
}

/// The address to post to, which must be at the same server: the headers go there too.
fn endpoint(server: &RemoteServer, first: &Event) -> Result<Url, ConnectError> {
    let named = first.name.as_deref() == Some("endpoint");
    let address = event_text(first).ok().filter(|text| named && text.len() <= MAX_ENDPOINT_BYTES);
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
                tracing::debug!(%error, "the stream of an MCP server broke");
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

/// What an event says; an error for the request that it answers, when it can't be read.
fn message(event: &Event) -> Option<ServerJsonRpcMessage> {
    if !has_message(event) {
        return None;
    }
    match event_text(event) {
        Ok(text) => frame::read(text.as_bytes())
            .or_else(|why| frame::in_place_of(text.as_bytes(), why).ok_or(why)),
        Err((beginning, why)) => frame::in_place_of(beginning, why).ok_or(why),
    }
    .inspect_err(|error| tracing::debug!(%error, "dropped a message of an MCP server"))
    .ok()
}
