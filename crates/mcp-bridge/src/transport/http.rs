//! Streamable HTTP: rmcp's transport over a client that dials by policy and reads with suspicion.

mod answer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcRequest, RequestId, ServerJsonRpcMessage,
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

use super::dial::Patience;
use super::event_stream::{EventStream, event_text, has_message};
use super::failure::ConnectError;
use super::peer::{Kind, Peer, failure_of, kind, read_body};
use super::remote_server::RemoteServer;
use crate::frame;
use answer::{answer_to, error_to, events_of, read_answer, unreadable};

/// What is read of an answer that says that something went wrong.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The longest session id that is sent back.
const MAX_SESSION_BYTES: usize = 4096;
/// How long a session that is gone stays open, so that the calls that found out about it end with
/// that answer before all others end with the session.
const GRACE: Duration = Duration::from_secs(1);
/// How many requests may wait for the beginning of their answer.
const MAX_WAITING: usize = 256;

const ACCEPTED_KINDS: &str = "application/json, text/event-stream";
const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";

type HttpError = StreamableHttpError<ConnectError>;

/// Prepares a session over streamable HTTP. The server is asked for the first time by the
/// handshake; only its name is resolved here.
///
/// # Errors
/// When it is not to be dialled, or its name does not resolve.
pub async fn connect(server: &RemoteServer) -> Result<HttpTransport, ConnectError> {
    server.find().await?;
    let gone = CancellationToken::new();
    let client = HttpPeer {
        peer: Peer::new(server, Patience::Answer)?,
        handshake_timeout: server.policy.idle_timeout,
        gone: gone.clone(),
    };
    let mut config = StreamableHttpClientTransportConfig::with_uri(server.url.as_str())
        .max_concurrent_requests(MAX_WAITING)
        // A session that is gone takes what was learnt in it along: its owner opens another one.
        .reinit_on_expired_session(false);
    let mut again = ExponentialBackoff::default();
    again.max_delay = Some(Duration::from_secs(30));
    config.retry_config = Arc::new(again);
    let inner = StreamableHttpClientTransport::with_client(client, config);
    Ok(HttpTransport { inner, gone, ends: None })
}

/// A session over streamable HTTP.
///
/// It ends when the server says that the session is gone (404): the call that was told so fails
/// with [`FailureClass::Gone`](super::FailureClass::Gone), and was not run.
pub struct HttpTransport {
    inner: StreamableHttpClientTransport<HttpPeer>,
    gone: CancellationToken,
    ends: Option<Instant>,
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
        let Self { inner, gone, ends } = self;
        tokio::select! {
            message = inner.receive() => message,
            () = async {
                gone.cancelled().await;
                sleep_until(*ends.get_or_insert_with(|| Instant::now() + GRACE)).await;
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
    gone: CancellationToken,
}

impl HttpPeer {
    async fn send(
        &self,
        uri: &str,
        request: impl Fn(&reqwest::Client, Url) -> RequestBuilder,
        headers: &HashMap<HeaderName, HeaderValue>,
        session: Option<&str>,
    ) -> Result<Response, HttpError> {
        let url = Url::parse(uri).map_err(|_| ConnectError::Malformed("its URL is none"))?;
        let response = self.peer.send(&url, |client| {
            let mut request = request(client, url.clone());
            for (name, value) in headers {
                request = request.header(name, value);
            }
            match session {
                Some(session) => request.header(SESSION, session),
                None => request,
            }
        });
        Ok(response.await?)
    }

    /// What becomes of a request that the server rejected by status. It may say why in the
    /// protocol's words, and a server of the older era says so of the newer era's handshake in
    /// any words.
    async fn rejected(
        &self,
        response: Response,
        request: &JsonRpcRequest<ClientRequest>,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let status = response.status();
        let refusal = refusal(&response);
        let needs_no_words = matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        );
        if needs_no_words || status.is_redirection() {
            return Err(refusal);
        }
        let error = match kind(&response) {
            Kind::Json => json_rpc_error(response).await,
            _ => None,
        };
        if in_session && status == StatusCode::BAD_REQUEST && error.as_ref().is_some_and(no_session)
        {
            self.gone.cancel();
            return Err(StreamableHttpError::SessionExpired);
        }
        let older_era = matches!(request.request, ClientRequest::DiscoverRequest(_))
            && status.is_client_error()
            && !in_session;
        let error = error.or_else(|| {
            older_era.then(|| ErrorData::invalid_request(format!("HTTP status {status}"), None))
        });
        let error = error.ok_or(refusal)?;
        let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
        Ok(StreamableHttpPostResponse::Json(answer, None))
    }

    /// The answer to a handshake: read to the end here, so that its failures keep their class.
    async fn first_answer(
        &self,
        response: Response,
        id: &RequestId,
    ) -> Result<ServerJsonRpcMessage, HttpError> {
        let mut events = EventStream::new(response);
        let answer = async {
            while let Some(event) = events.next().await? {
                if !has_message(&event) {
                    continue;
                }
                let text = event_text(&event).map_err(|(_, why)| unreadable(why))?;
                let message = frame::read(text.as_bytes()).map_err(unreadable)?;
                if let Some(answer) = answer_to(id, message) {
                    return Ok(answer);
                }
            }
            Err(ConnectError::Malformed("its answer ended before it was complete"))
        };
        let answer = timeout(self.handshake_timeout, answer).await;
        Ok(answer.unwrap_or(Err(ConnectError::TimedOut))?)
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
        let post = |client: &reqwest::Client, url| {
            let request = client.post(url).header(ACCEPT, ACCEPTED_KINDS);
            request.header("content-type", "application/json").body(body.clone())
        };
        let response = self.send(&uri, post, &headers, session.as_deref()).await?;
        let status = response.status();
        if session.is_some() && status == StatusCode::NOT_FOUND {
            self.gone.cancel();
            return Err(StreamableHttpError::SessionExpired);
        }
        let ClientJsonRpcMessage::Request(request) = &message else {
            // Nobody waits for what it may say.
            return match status.is_success() {
                true => Ok(StreamableHttpPostResponse::Accepted),
                false => Err(refusal(&response)),
            };
        };
        if !status.is_success() {
            return self.rejected(response, request, session.is_some()).await;
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let opened = session_of(&response);
        let is_handshake = is_handshake(&request.request);
        match kind(&response) {
            Kind::Json => {
                let answer = read_answer(response, &request.id).await?;
                let answer = match answer {
                    Err(why) if is_handshake => return Err(unreadable(why).into()),
                    answer => answer.unwrap_or_else(|why| error_to(&request.id, why.to_string())),
                };
                Ok(StreamableHttpPostResponse::Json(answer, opened))
            }
            Kind::Events if is_handshake => {
                let answer = self.first_answer(response, &request.id).await?;
                Ok(StreamableHttpPostResponse::Json(answer, opened))
            }
            Kind::Events => {
                let events = events_of(EventStream::new(response), Some(request.id.clone()));
                Ok(StreamableHttpPostResponse::Sse(events, opened))
            }
            Kind::Other => {
                Err(ConnectError::Malformed("its answer is neither JSON nor events").into())
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
        let delete = |client: &reqwest::Client, url| client.delete(url);
        let response = self.send(&uri, delete, &headers, Some(&session)).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            // It can't be deleted, or is gone already.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(refusal(&response)),
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
        let get = |client: &reqwest::Client, url| {
            let request = client.get(url).header(ACCEPT, ACCEPTED_KINDS);
            match &last_event {
                Some(id) => request.header(LAST_EVENT, id),
                None => request,
            }
        };
        let response = self.send(&uri, get, &headers, session.as_deref()).await?;
        match (response.status(), kind(&response)) {
            // 404 too: a server without such a stream may not know the address for it at all.
            // If the session is gone, the next request says so.
            (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND, _) => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            (status, _) if !status.is_success() => Err(refusal(&response)),
            (_, Kind::Events) => Ok(events_of(EventStream::new(response), None)),
            _ => Err(ConnectError::Malformed("its stream has no events").into()),
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

fn session_of(response: &Response) -> Option<String> {
    let session = response.headers().get(SESSION)?.to_str().ok()?;
    (!session.is_empty() && session.len() <= MAX_SESSION_BYTES).then(|| session.to_owned())
}

/// A status that is no success, in rmcp's words where it has some.
fn refusal(response: &Response) -> HttpError {
    match failure_of(response) {
        ConnectError::Unauthorised { challenge: Some(challenge) } => {
            if response.status() == StatusCode::UNAUTHORIZED {
                StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge))
            } else {
                let error = InsufficientScopeError::new(challenge, None);
                StreamableHttpError::InsufficientScope(error)
            }
        }
        ConnectError::Status(status) if status == 429 || status >= 500 => {
            let after = response.headers().get("retry-after");
            let after = after.and_then(|value| value.to_str().ok()).map(str::to_owned);
            HttpStatusError::new(status, after).into()
        }
        error => error.into(),
    }
}

/// What servers built like the examples of the protocol's TypeScript SDK say, with status 400, of
/// a session that they do not know, where the specification wants a 404.
fn no_session(error: &ErrorData) -> bool {
    let message = error.message.to_ascii_lowercase();
    error.code.0 == -32000 && (message.contains("session") || message.contains("not initialized"))
}

async fn json_rpc_error(response: Response) -> Option<ErrorData> {
    let body = read_body(response, MAX_ERROR_BYTES).await.ok()??;
    match frame::read(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    }
}
