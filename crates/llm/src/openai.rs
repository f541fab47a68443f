//! A client for OpenAI-compatible chat completions: OpenAI, OpenRouter, Ollama, llama.cpp, vLLM.
//!
//! A request is retried only before its answer has started. Connecting and idle periods have timeouts;
//! the whole answer has none, so the caller sets the deadline of a turn.

mod answer;
mod chunk;
mod content;
mod endpoint;
mod error_response;
mod request;
mod retry;

use std::{sync::Arc, time::Duration};

use backon::Retryable;
use futures_util::future::{BoxFuture, FutureExt};
use reqwest::{
    Client, Response,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::time;

use crate::{
    chat::{ChatModel, ChatRequest, ChatStream},
    config::LlmConfigError,
    error::{ChatError, TimeoutPhase},
};
use answer::Answer;
pub(crate) use endpoint::Endpoint;
use error_response::{ErrorResponse, RequestContext, sanitize};

/// The name of a model that the server chooses.
const SERVER_CHOICE: &str = "default";
/// The largest error body that is read, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Settings of a client. `Debug` hides the key.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// The base URL, `http` or `https`, without `/chat/completions`.
    pub base_url: String,
    /// The model's name at the server. Requests without a name leave the choice to the server.
    pub model: Option<String>,
    /// The bearer token; most local servers need none.
    pub api_key: Option<SecretString>,
    /// The source of the key, named in the error message when the server rejects the key.
    pub key_source: KeySource,
    /// The connect timeout. Default: 10 s.
    pub connect_timeout: Duration,
    /// The idle timeout, before the first byte and between any two. Keep-alive comments reset it.
    /// Default: 60 s.
    pub idle_timeout: Duration,
    /// The maximum number of attempts. Default: 3.
    pub max_attempts: u32,
    /// The limit for an answer, in tokens, unless the request sets it.
    pub max_tokens: Option<u32>,
    /// The temperature, unless the request sets it.
    pub temperature: Option<f64>,
}

impl Default for OpenAiSettings {
    fn default() -> Self {
        Self {
            base_url: "https://api.openai.com/v1".to_owned(),
            model: Some("gpt-4o-mini".to_owned()),
            api_key: None,
            key_source: KeySource::Section,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            max_attempts: 3,
            max_tokens: None,
            temperature: None,
        }
    }
}

/// The place where a key is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// An environment variable.
    Environment(&'static str),
    /// The configuration section `[llm]`.
    Section,
}

impl KeySource {
    /// Returns the advice for a rejected key.
    fn hint(self, has_key: bool) -> String {
        let prefix = if has_key { "" } else { "no key was sent: " };
        match self {
            Self::Environment(variable) => format!("{prefix}set {variable} to a valid key"),
            Self::Section => format!("{prefix}set api_key or api_key_file in the section [llm]"),
        }
    }
}

/// A model behind an OpenAI-compatible server.
#[derive(Debug)]
pub struct OpenAiModel {
    client: Client,
    endpoint: Endpoint,
    authorization: Option<HeaderValue>,
    settings: Arc<OpenAiSettings>,
}

/// A failed attempt and the delay that the server requested.
struct FailedAttempt {
    error: ChatError,
    retry_after: Option<Duration>,
}

impl From<ChatError> for FailedAttempt {
    fn from(error: ChatError) -> Self {
        Self { error, retry_after: None }
    }
}

impl OpenAiModel {
    /// Creates a client. No request is sent yet.
    ///
    /// The process must have installed a rustls provider, even for a server without TLS.
    ///
    /// # Errors
    /// When the base URL or the key is invalid, or TLS cannot be set up.
    #[expect(clippy::disallowed_methods, reason = "the operator configures its one host")]
    pub fn new(settings: OpenAiSettings) -> Result<Self, LlmConfigError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(LlmConfigError::NoTlsProvider);
        }
        let endpoint = Endpoint::parse(&settings.base_url)?;
        let authorization = settings.api_key.as_ref().map(bearer).transpose()?;
        let mut client = Client::builder()
            .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
            // Limits on responses are limits on received bytes.
            .no_gzip()
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none());
        if endpoint.is_loopback() {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|source| LlmConfigError::Client { source })?;
        Ok(Self { client, endpoint, authorization, settings: Arc::new(settings) })
    }

    async fn request(&self, request: ChatRequest) -> Result<ChatStream, ChatError> {
        let body = request::Body::new(&request, &self.settings, self.endpoint.is_openai());
        let body = serde_json::to_vec(&body)
            .map_err(|error| ChatError::malformed(format!("the request: {error}")))?;
        let model = request.model.as_deref().unwrap_or(self.name());
        (|| self.attempt(&body, model))
            .retry(retry::backoff(self.settings.max_attempts))
            .sleep(time::sleep)
            .when(|failed| failed.error.is_transient())
            .adjust(|failed, delay| retry::next_delay(failed.retry_after, delay))
            .notify(|failed, delay| {
                tracing::debug!(?delay, error = %failed.error, "model request failed; retrying");
            })
            .await
            .map_err(|failed| failed.error)
    }

    /// Sends the request once and waits for the first event, so that a failure reported inside the stream
    /// instead of an answer is retried like any other.
    async fn attempt(&self, body: &[u8], model: &str) -> Result<ChatStream, FailedAttempt> {
        let response = self.send(body).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.error_from_response(response, model).await);
        }
        if let Some(content_type) = document_type(response.headers()) {
            return Err(self.error_from_document(response, &content_type, model).await.into());
        }
        let mut answer = Answer::new(response, model.to_owned(), Arc::clone(&self.settings));
        match answer.next().await {
            Some(Err(error)) => Err(error.into()),
            first => Ok(answer.into_stream(first)),
        }
    }

    async fn send(&self, body: &[u8]) -> Result<Response, ChatError> {
        let mut request = self
            .client
            .post(self.endpoint.chat_completions())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .body(body.to_vec());
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let OpenAiSettings { connect_timeout, idle_timeout, .. } = *self.settings;
        match time::timeout(connect_timeout + idle_timeout, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.connection_error(error)),
            Err(_) => Err(ChatError::TimedOut { phase: TimeoutPhase::Idle, after: idle_timeout }),
        }
    }

    fn connection_error(&self, error: reqwest::Error) -> ChatError {
        let source = error.without_url();
        match (source.is_connect(), source.is_timeout()) {
            (_, true) => ChatError::TimedOut {
                phase: TimeoutPhase::Connect,
                after: self.settings.connect_timeout,
            },
            (true, false) => ChatError::Unreachable {
                endpoint: self.settings.base_url.clone(),
                source: source.into(),
            },
            (false, false) => ChatError::Interrupted { source: Some(source.into()) },
        }
    }

    async fn error_from_response(&self, response: Response, model: &str) -> FailedAttempt {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(retry::parse_retry_after);
        let error_response = if status.is_redirection() {
            let message = "redirects are not followed; set base_url to the final URL";
            ErrorResponse::from_body(message.as_bytes())
        } else {
            ErrorResponse::from_body(&self.read_error_body(response).await)
        };
        let status = Some(status.as_u16());
        let settings = &self.settings;
        let context = RequestContext { status, retry_after, model, settings };
        FailedAttempt { error: error_response.into_error(&context), retry_after }
    }

    /// Classifies a response that is not an event stream. Some proxies report failures with status 200; a
    /// web page indicates a wrong base URL.
    async fn error_from_document(
        &self,
        response: Response,
        content_type: &str,
        model: &str,
    ) -> ChatError {
        let body = self.read_error_body(response).await;
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(body) if body.get("error").is_some_and(|error| !error.is_null()) => {
                let settings = &self.settings;
                let context = RequestContext { status: None, retry_after: None, model, settings };
                ErrorResponse::from_value(&body["error"]).into_error(&context)
            }
            _ => ChatError::malformed(format!(
                "its content type is {} instead of an event stream; check that base_url ends before \
                 /chat/completions (mostly in /v1)",
                sanitize(content_type, None)
            )),
        }
    }

    /// Reads the body within bounds, and returns what arrived: a truncated explanation beats none.
    async fn read_error_body(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                let remaining = MAX_ERROR_BODY_BYTES - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
                if body.len() == MAX_ERROR_BODY_BYTES {
                    break;
                }
            }
        };
        // The status alone is enough for the error.
        let _ = time::timeout(self.settings.idle_timeout, reading).await;
        body
    }
}

impl ChatModel for OpenAiModel {
    fn name(&self) -> &str {
        self.settings.model.as_deref().unwrap_or(SERVER_CHOICE)
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        self.request(request).boxed()
    }
}

fn bearer(key: &SecretString) -> Result<HeaderValue, LlmConfigError> {
    let mut value =
        HeaderValue::try_from(format!("Bearer {}", key.expose_secret())).map_err(|_| {
            LlmConfigError::invalid("the API key has characters that are invalid in a header")
        })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the content type if it rules out an event stream; servers are lax about it otherwise.
fn document_type(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let is_document = ["application/json", "text/html"]
        .iter()
        .any(|document| content_type.to_ascii_lowercase().starts_with(document));
    is_document.then(|| content_type.to_owned())
}
