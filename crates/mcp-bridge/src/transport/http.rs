//! Streamable HTTP: rmcp's transport over a client that dials by policy and bounds what it reads.

mod response;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::event_stream::{EventStream, event_text, has_message};
use super::failure::ConnectError;
use super::peer::{BodyKind, Peer, ReadTimeout, body_kind, read_within, retry_after, status_error};
use super::remote_server::RemoteServer;
use crate::frame;
use response::{error_reply_to, read_response, response_events, response_to, unreadable};

/// The largest error response that is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The longest session id, in bytes.
const MAX_SESSION_BYTES: usize = 4096;
/// The delay before an expired session closes, so that the calls that received the expiry report it
/// before the others fail with the session.
const GRACE: Duration = Duration::from_secs(1);
/// The maximum number of requests that wait for the start of their response.
const MAX_PENDING: usize = 256;

const ACCEPTED_KINDS: &str = "application/json, text/event-stream";
const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";

type HttpError = StreamableHttpError<ConnectError>;

/// Prepares a session over streamable HTTP. The handshake sends the first request; only the name is
/// resolved here.
///
/// # Errors
/// When it may not be dialed, or its name does not resolve.
pub async fn connect(server: &RemoteServer) -> Result<HttpTransport, ConnectError> {
    server.resolve().await?;
    let session_expired = CancellationToken::new();
    let client = HttpPeer {
        peer: Peer::new(server, ReadTimeout::Idle)?,
        handshake_timeout: server.idle_timeout,
        session_expired: session_expired.clone(),
    };
    let mut config = StreamableHttpClientTransportConfig::with_uri(server.url.as_str())
        .max_concurrent_requests(MAX_PENDING)
        // Tools and state belong to a session: its owner opens another one.
        .reinit_on_expired_session(false);
    let mut retry = ExponentialBackoff::default();
    retry.max_delay = Some(Duration::from_secs(30));
    config.retry_config = Arc::new(retry);
    let inner = StreamableHttpClientTransport::with_client(client, config);
    Ok(HttpTransport { inner, session_expired, ends_at: None })
}

/// A session over streamable HTTP.
///
/// It ends when the server reports that the session is gone (404). The call that received the report
/// fails with [`FailureClass::Gone`](super::FailureClass::Gone), and was not run.
pub struct HttpTransport {
    inner: StreamableHttpClientTransport<HttpPeer>,
    session_expired: CancellationToken,
    ends_at: Option<Instant>,
}

impl Transport<RoleClient> for HttpTransport {
    type Error = HttpError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), HttpError>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let Self { inner, session_expired, ends_at } = self;
        tokio::select! {
            message = inner.receive() => message,
            () = async {
                session_expired.cancelled().await;
                sleep_until(*ends_at.get_or_insert_with(|| Instant::now() + GRACE)).await;
            } => None,
        }
    }

    async fn close(&mut self) -> Result<(), HttpError> {
        self.inner.close().await
    }
}

/// The HTTP client under rmcp's transport.
#[derive(Clone)]
pub struct HttpPeer {
    peer: Peer,
    handshake_timeout: Duration,
    session_expired: CancellationToken,
}

impl HttpPeer {
    async fn send(
        &self,
        method: Method,
        uri: &str,
        configure: impl Fn(RequestBuilder) -> RequestBuilder,
        headers: &HashMap<HeaderName, HeaderValue>,
        session: Option<&str>,
    ) -> Result<Response, HttpError> {
        let url = Url::parse(uri).map_err(|_| ConnectError::Malformed("its URL is invalid"))?;
        let response = self.peer.send(|client| {
            let mut request = configure(client.request(method.clone(), url.clone())?);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            Ok(match session {
                Some(session) => request.header(SESSION, session),
                None => request,
            })
        });
        Ok(response.await?)
    }

    /// Handles a request that the server rejected by status. The body may hold a JSON-RPC error; a server
    /// of the older era rejects the newer era's handshake with any body.
    async fn rejected(
        &self,
        response: Response,
        request: &JsonRpcRequest<ClientRequest>,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let status = response.status();
        let status_failure = status_failure(&response);
        let is_final = matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::TOO_MANY_REQUESTS
        ) || (status == StatusCode::SERVICE_UNAVAILABLE
            && retry_after(response.headers()).is_some());
        if is_final || status.is_redirection() {
            return Err(status_failure);
        }
        let error = match body_kind(&response) {
            BodyKind::Json => json_rpc_error(response).await,
            _ => None,
        };
        if in_session
            && status == StatusCode::BAD_REQUEST
            && error.as_ref().is_some_and(is_unknown_session)
        {
            self.session_expired.cancel();
            return Err(StreamableHttpError::SessionExpired);
        }
        let older_era = matches!(request.request, ClientRequest::DiscoverRequest(_))
            && status.is_client_error()
            && !in_session;
        let error = error.or_else(|| {
            older_era.then(|| ErrorData::invalid_request(format!("HTTP status {status}"), None))
        });
        let mut error = error.ok_or(status_failure)?;
        let is_call = matches!(request.request, ClientRequest::CallToolRequest(_));
        let is_known =
            matches!(error.code, ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND);
        if is_call && status == StatusCode::BAD_REQUEST && !is_known {
            // The status says that the request was not processed; the codes of servers differ.
            error.code = ErrorCode::INVALID_REQUEST;
        }
        let reply = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
        Ok(StreamableHttpPostResponse::Json(reply, None))
    }

    /// Reads the response to a handshake to its end, so that its failures keep their class.
    async fn handshake_response(
        &self,
        response: Response,
        id: &RequestId,
    ) -> Result<ServerJsonRpcMessage, HttpError> {
        let mut events = EventStream::new(response);
        let reply = async {
            while let Some(event) = events.next().await? {
                if !has_message(&event) {
                    continue;
                }
                let text = event_text(&event).map_err(|(_, reason)| unreadable(reason))?;
                let message = frame::read(text.as_bytes()).map_err(unreadable)?;
                if let Some(reply) = response_to(id, message) {
                    return Ok(reply);
                }
            }
            Err(ConnectError::Malformed("its response ended before it was complete"))
        };
        let reply = timeout(self.handshake_timeout, reply).await;
        Ok(reply.unwrap_or(Err(ConnectError::TimedOut))?)
    }
}

impl StreamableHttpClient for HttpPeer {
    type Error = ConnectError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let body = serde_json::to_vec(&message)?;
        let configure = |request: RequestBuilder| {
            let request = request.header(ACCEPT, ACCEPTED_KINDS);
            request.header("content-type", "application/json").body(body.clone())
        };
        let response =
            self.send(Method::POST, &uri, configure, &headers, session.as_deref()).await?;
        let status = response.status();
        if session.is_some() && status == StatusCode::NOT_FOUND {
            self.session_expired.cancel();
            return Err(StreamableHttpError::SessionExpired);
        }
        let ClientJsonRpcMessage::Request(request) = &message else {
            // A notification has no response.
            return if status.is_success() {
                Ok(StreamableHttpPostResponse::Accepted)
            } else {
                Err(status_failure(&response))
            };
        };
        if !status.is_success() {
            return self.rejected(response, request, session.is_some()).await;
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let opened = session_id(&response);
        let is_handshake = is_handshake(&request.request);
        match body_kind(&response) {
            BodyKind::Json => {
                let reply = read_response(response, &request.id).await?;
                let reply = match reply {
                    Err(reason) if is_handshake => return Err(unreadable(reason).into()),
                    reply => reply
                        .unwrap_or_else(|reason| error_reply_to(&request.id, reason.to_string())),
                };
                Ok(StreamableHttpPostResponse::Json(reply, opened))
            }
            BodyKind::Events if is_handshake => {
                let reply = self.handshake_response(response, &request.id).await?;
                Ok(StreamableHttpPostResponse::Json(reply, opened))
            }
            BodyKind::Events => {
                let events = response_events(EventStream::new(response), Some(request.id.clone()));
                Ok(StreamableHttpPostResponse::Sse(events, opened))
            }
            BodyKind::Other => {
                Err(ConnectError::Malformed("its response is neither JSON nor an event stream")
                    .into())
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let unchanged = |request| request;
        let response = self.send(Method::DELETE, &uri, unchanged, &headers, Some(&session)).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            // Deletion is not supported, or it is gone already.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(status_failure(&response)),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let configure = |request: RequestBuilder| {
            let request = request.header(ACCEPT, ACCEPTED_KINDS);
            match &last_event {
                Some(id) => request.header(LAST_EVENT, id),
                None => request,
            }
        };
        let response =
            self.send(Method::GET, &uri, configure, &headers, session.as_deref()).await?;
        match (response.status(), body_kind(&response)) {
            // 404 too: a server without such a stream may not know its URL at all. If the session is
            // gone, the next request reports it.
            (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND, _) => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            (status, _) if !status.is_success() => Err(status_failure(&response)),
            (_, BodyKind::Events) => Ok(response_events(EventStream::new(response), None)),
            _ => Err(ConnectError::Malformed("its response is not an event stream").into()),
        }
    }
}

impl From<ConnectError> for HttpError {
    fn from(error: ConnectError) -> Self {
        Self::Client(error)
    }
}

fn is_handshake(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_))
}

fn session_id(response: &Response) -> Option<String> {
    let session = response.headers().get(SESSION)?.to_str().ok()?;
    (!session.is_empty() && session.len() <= MAX_SESSION_BYTES).then(|| session.to_owned())
}

/// Converts an unsuccessful status to rmcp's error, where it has one.
fn status_failure(response: &Response) -> HttpError {
    match status_error(response) {
        ConnectError::Unauthorized { challenge: Some(challenge) } => {
            if response.status() == StatusCode::UNAUTHORIZED {
                StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge))
            } else {
                let error = InsufficientScopeError::new(challenge, None);
                StreamableHttpError::InsufficientScope(error)
            }
        }
        ConnectError::Status { status, retry_after } if status == 429 || status >= 500 => {
            HttpStatusError::new(status, retry_after).into()
        }
        error => error.into(),
    }
}

/// Returns whether the error means an unknown session: servers modeled on the examples of the
/// TypeScript SDK report that with status 400, where the specification requires 404.
fn is_unknown_session(error: &ErrorData) -> bool {
    let message = error.message.to_ascii_lowercase();
    error.code.0 == -32000 && (message.contains("session") || message.contains("not initialized"))
}

async fn json_rpc_error(response: Response) -> Option<ErrorData> {
    let body = read_within(response, MAX_ERROR_BYTES).await.ok()??;
    match frame::read(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    }
}
