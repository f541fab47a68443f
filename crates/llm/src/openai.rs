//! A client for servers that speak OpenAI's chat completions: OpenAI, OpenRouter, Ollama,
//! llama.cpp, vLLM.
//!
//! A request is repeated only while the answer has not begun. Connecting and every silence of the
//! server have a time-out; the whole answer has none, so whoever runs a turn sets its deadline.

mod answer;
mod chunk;
mod endpoint;
mod refusal;
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
use refusal::{Circumstances, Refusal, presentable};

/// The most that is read of an error's body, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Where the model is and how to ask it. `Debug` hides the key.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// `http` or `https`, up to what precedes `/chat/completions`.
    pub base_url: String,
    /// The model's name, as the server knows it.
    pub model: String,
    /// Sent as a bearer token; a local server mostly needs none.
    pub api_key: Option<SecretString>,
    /// Where the key is set, to say so when the server refuses it.
    pub key_source: KeySource,
    /// How long a connection may take. Default: 10 s.
    pub connect_timeout: Duration,
    /// How long the server may be silent, before the first byte and between any two. Comments that
    /// keep a connection alive count as a sign of life. Default: 60 s.
    pub idle_timeout: Duration,
    /// How often a request is sent at most. Default: 3.
    pub max_attempts: u32,
    /// The longest answer, in tokens, where a request doesn't say.
    pub max_tokens: Option<u32>,
    /// The temperature, where a request doesn't say.
    pub temperature: Option<f64>,
}

impl Default for OpenAiSettings {
    fn default() -> Self {
        Self {
            base_url: "https://api.openai.com/v1".to_owned(),
            model: "gpt-4o-mini".to_owned(),
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

/// Where a key is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// In this variable of the environment.
    Environment(&'static str),
    /// In the section `[llm]` of the configuration.
    Section,
}

impl KeySource {
    fn hint(self, has_key: bool) -> String {
        let sent = if has_key { "" } else { "no key was sent: " };
        match self {
            Self::Environment(variable) => format!("{sent}set {variable} to a valid key"),
            Self::Section => format!("{sent}set api_key or api_key_file in the section [llm]"),
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

/// A failed attempt, and when the server wants the next one.
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
    /// Prepares a client. Nothing is sent yet.
    ///
    /// The process must have installed a rustls provider before, also for a server without TLS.
    ///
    /// # Errors
    /// For a base URL or a key that can't be used, and when TLS can't be set up.
    pub fn new(settings: OpenAiSettings) -> Result<Self, LlmConfigError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(LlmConfigError::NoTlsProvider);
        }
        let endpoint = Endpoint::parse(&settings.base_url)?;
        let authorization = settings.api_key.as_ref().map(bearer).transpose()?;
        let mut client = Client::builder()
            .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.connect_timeout)
            .redirect(reqwest::redirect::Policy::none());
        if endpoint.is_loopback() {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|source| LlmConfigError::Client { source })?;
        Ok(Self { client, endpoint, authorization, settings: Arc::new(settings) })
    }

    async fn ask(&self, request: ChatRequest) -> Result<ChatStream, ChatError> {
        let body = request::Body::new(&request, &self.settings, self.endpoint.is_openai());
        let body = serde_json::to_vec(&body)
            .map_err(|error| ChatError::malformed(format!("the request: {error}")))?;
        let model = request.model.as_deref().unwrap_or(&self.settings.model);
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

    /// Sends the request once and waits for the first event, so that a failure which a server
    /// reports inside its stream, in place of an answer, can be repeated like any other.
    async fn attempt(&self, body: &[u8], model: &str) -> Result<ChatStream, FailedAttempt> {
        let response = self.send(body).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(response, model).await);
        }
        if let Some(content_type) = not_a_stream(response.headers()) {
            return Err(self.not_streamed(response, &content_type, model).await.into());
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
            Ok(Err(error)) => Err(self.not_sent(error)),
            Err(_) => Err(ChatError::TimedOut { phase: TimeoutPhase::Idle, after: idle_timeout }),
        }
    }

    fn not_sent(&self, error: reqwest::Error) -> ChatError {
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

    async fn refused(&self, response: Response, model: &str) -> FailedAttempt {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(retry::parse_retry_after);
        let refusal = if status.is_redirection() {
            let message = "redirects are not followed; set base_url to the address that answers";
            Refusal::from_body(message.as_bytes())
        } else {
            Refusal::from_body(&self.read_error_body(response).await)
        };
        let status = Some(status.as_u16());
        let settings = &self.settings;
        let circumstances = Circumstances { status, retry_after, model, settings };
        FailedAttempt { error: refusal.into_error(&circumstances), retry_after }
    }

    /// Some proxies report a failure with status 200; a web page says that the base URL is wrong.
    async fn not_streamed(&self, response: Response, content_type: &str, model: &str) -> ChatError {
        let body = self.read_error_body(response).await;
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(body) if body.get("error").is_some_and(|error| !error.is_null()) => {
                let settings = &self.settings;
                let circumstances =
                    Circumstances { status: None, retry_after: None, model, settings };
                Refusal::from_value(&body["error"]).into_error(&circumstances)
            }
            _ => ChatError::malformed(format!(
                "it is {} and not an event stream; check that base_url ends before \
                 /chat/completions (mostly in /v1)",
                presentable(content_type, None)
            )),
        }
    }

    /// What can be had of the body within bounds: an explanation cut short is better than none.
    async fn read_error_body(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                let room = MAX_ERROR_BODY_BYTES - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if body.len() == MAX_ERROR_BODY_BYTES {
                    break;
                }
            }
        };
        // The status alone already says what to do.
        let _ = time::timeout(self.settings.idle_timeout, reading).await;
        body
    }
}

impl ChatModel for OpenAiModel {
    fn name(&self) -> &str {
        &self.settings.model
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        self.ask(request).boxed()
    }
}

fn bearer(key: &SecretString) -> Result<HeaderValue, LlmConfigError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret()))
        .map_err(|_| LlmConfigError::invalid("the API key has characters that can't be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The content type of a response that surely holds no events; servers are lax about it otherwise.
fn not_a_stream(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let is_document = ["application/json", "text/html"]
        .iter()
        .any(|document| content_type.to_ascii_lowercase().starts_with(document));
    is_document.then(|| content_type.to_owned())
}
