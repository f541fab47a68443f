//! MCP over WebSocket: subprotocol `mcp`, one protocol message per text message.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, Stream, StreamExt};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rockbot_egress::tls_config;
use rustls::pki_types::ServerName;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::failure::ConnectError;
use super::peer::retry_after;
use super::remote_server::{CONNECT_TIMEOUT, RemoteServer, TokenSource, bearer};
use crate::frame::{self, MAX_FRAME_BYTES, Unreadable};

/// The largest message, in bytes. One above the frame limit fails its own call; one above this ends the
/// session, because nothing after it can be read.
const MAX_MESSAGE_BYTES: usize = 4 * MAX_FRAME_BYTES;
/// Messages that are buffered in each direction.
const BUFFERED_MESSAGES: usize = 64;
/// The interval between pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The idle timeout; pongs reset it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The time limit for sending one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects and negotiates the subprotocol.
///
/// # Errors
/// When the session cannot be opened. The connection is closed then.
pub async fn connect(server: &RemoteServer) -> Result<WebSocketTransport, ConnectError> {
    let tokens = server.token_source();
    let opened = open_with_token(server, tokens.as_deref()).await;
    if let (Err(ConnectError::Unauthorized { challenge }), Some(tokens)) = (&opened, tokens) {
        tokens.record_challenge(challenge.as_deref());
    }
    let socket = opened?;
    let (outgoing, to_send) = mpsc::channel(BUFFERED_MESSAGES);
    let (received, incoming) = mpsc::channel(BUFFERED_MESSAGES);
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(socket, to_send, received, stop.clone()));
    Ok(WebSocketTransport { outgoing, incoming, stop, task: AbortOnDropHandle::new(task) })
}

async fn open_with_token(
    server: &RemoteServer,
    tokens: Option<&dyn TokenSource>,
) -> Result<Socket, ConnectError> {
    let token = match tokens {
        Some(tokens) => tokens.token().await?,
        None => None,
    };
    match (open(server, token.as_ref()).await, tokens, token) {
        (Err(refused @ ConnectError::Unauthorized { .. }), Some(tokens), Some(token)) => {
            let token = tokens.renew(&token).await?.ok_or(refused)?;
            open(server, Some(&token)).await
        }
        (socket, ..) => socket,
    }
}

/// A session over WebSocket. It ends with its connection, and is closed when dropped.
pub struct WebSocketTransport {
    outgoing: mpsc::Sender<Outgoing>,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

struct Outgoing {
    message: Message,
    result: oneshot::Sender<Result<(), ConnectError>>,
}

impl Transport<RoleClient> for WebSocketTransport {
    type Error = ConnectError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), ConnectError>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let text = serde_json::to_string(&message)
                .map_err(|error| ConnectError::Connection(error.into()))?;
            let (result, sent) = oneshot::channel();
            let message = Outgoing { message: Message::text(text), result };
            outgoing.send(message).await.map_err(|_| ConnectError::Closed)?;
            sent.await.map_err(|_| ConnectError::Closed)?
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), ConnectError> {
        self.incoming.close();
        self.stop.cancel();
        // It ends by itself within `CLOSE_TIMEOUT`.
        let _ = (&mut self.task).await;
        Ok(())
    }
}

/// A connection, with TLS or without.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

type Socket = WebSocketStream<Box<dyn Connection>>;

async fn open(server: &RemoteServer, token: Option<&SecretString>) -> Result<Socket, ConnectError> {
    let opening = async {
        let connection = dial(server).await?;
        let request = request(server, token)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) = client_async_with_config(request, connection, Some(config)).await?;
        Ok(socket)
    };
    timeout(2 * CONNECT_TIMEOUT, opening).await.unwrap_or(Err(ConnectError::TimedOut))
}

async fn dial(server: &RemoteServer) -> Result<Box<dyn Connection>, ConnectError> {
    let addresses = server.resolve().await?;
    let tcp = TcpStream::connect(&addresses[..]).await?;
    tcp.set_nodelay(true)?;
    if server.url.scheme() != "wss" {
        return Ok(Box::new(tcp));
    }
    let host = server.url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host)
        .map_err(|_| ConnectError::Malformed("its host name is invalid in a certificate"))?;
    let connector = TlsConnector::from(Arc::new(tls_config(&server.policy)?));
    Ok(Box::new(connector.connect(name, tcp).await?))
}

fn request(
    server: &RemoteServer,
    token: Option<&SecretString>,
) -> Result<tungstenite::handshake::client::Request, ConnectError> {
    let mut request = server.url.as_str().into_client_request()?;
    let headers = request.headers_mut();
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mcp"));
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, bearer(token)?);
    }
    for (name, value) in &server.header_map()? {
        if is_handshake_header(name) {
            return Err(ConnectError::BadHeader(name.to_string()));
        }
        headers.insert(name, value.clone());
    }
    Ok(request)
}

fn is_handshake_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("sec-websocket-") || matches!(name, "connection" | "upgrade" | "host")
}

/// Transfers messages in both directions until one end closes.
async fn serve(
    mut socket: Socket,
    to_send: mpsc::Receiver<Outgoing>,
    received: mpsc::Sender<ServerJsonRpcMessage>,
    stop: CancellationToken,
) {
    let (sender, receiver) = (&mut socket).split();
    tokio::select! {
        () = send_all(sender, to_send) => {}
        () = receive_all(receiver, received) => {}
        () = stop.cancelled() => {}
    }
    // The server need not reply to the close.
    let _ = timeout(CLOSE_TIMEOUT, socket.close(None)).await;
}

async fn send_all(
    mut sender: impl SinkExt<Message, Error = tungstenite::Error> + Unpin,
    mut to_send: mpsc::Receiver<Outgoing>,
) {
    let mut ping = interval(PING_INTERVAL);
    loop {
        let (message, result) = tokio::select! {
            outgoing = to_send.recv() => match outgoing {
                Some(Outgoing { message, result }) => (message, Some(result)),
                None => return,
            },
            _ = ping.tick() => (Message::Ping(Vec::new().into()), None),
        };
        let outcome = match timeout(SEND_TIMEOUT, sender.send(message)).await {
            Ok(sent) => sent.map_err(ConnectError::from),
            Err(_) => Err(ConnectError::TimedOut),
        };
        let failed = outcome.is_err();
        if let Some(result) = result {
            // The caller may be gone.
            let _ = result.send(outcome);
        }
        if failed {
            return;
        }
    }
}

async fn receive_all(
    mut receiver: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
    received: mpsc::Sender<ServerJsonRpcMessage>,
) {
    // The end, an error or an idle timeout ends the session.
    while let Ok(Some(Ok(message))) = timeout(IDLE_TIMEOUT, receiver.next()).await {
        let message = match &message {
            Message::Text(text) => read(text.as_bytes()),
            Message::Binary(bytes) => frame::error_reply(bytes, Unreadable::Invalid),
            _ => None,
        };
        if let Some(message) = message
            && received.send(message).await.is_err()
        {
            return;
        }
    }
}

fn read(text: &[u8]) -> Option<ServerJsonRpcMessage> {
    frame::read(text)
        .or_else(|reason| frame::error_reply(text, reason).ok_or(reason))
        .inspect_err(|error| tracing::debug!(%error, "unreadable MCP message dropped"))
        .ok()
}

impl From<tungstenite::Error> for ConnectError {
    fn from(error: tungstenite::Error) -> Self {
        use tungstenite::Error as Ws;
        match error {
            Ws::Io(error) => error.into(),
            Ws::Http(response) if response.status().is_success() => {
                Self::Malformed("it is not a WebSocket server")
            }
            Ws::Http(response) => {
                let challenge = response.headers().get("www-authenticate");
                let challenge = challenge.and_then(|value| value.to_str().ok()).map(str::to_owned);
                let retry_after = retry_after(response.headers());
                Self::from_status(response.status().as_u16(), challenge, retry_after)
            }
            Ws::Protocol(ProtocolError::HandshakeIncomplete)
            | Ws::ConnectionClosed
            | Ws::AlreadyClosed => Self::Connection(error.into()),
            _ => Self::Malformed("it is not a WebSocket server"),
        }
    }
}
