//! The HTTP client of a remote agent: its card, and requests over JSON-RPC.

use std::{sync::Arc, time::Duration};

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use rockbot_contracts::{AgentName, trace};
use rockbot_egress::{ClientOptions, ConnectionSignal, EgressError, GuardedClient, read_body};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tracing::debug;
use url::Url;

use super::{
    card::{CardError, RemoteCard},
    card_keys::CardKeys,
    record::Record,
    rpc::{CallError, MAX_BODY_BYTES, causes_of, read_rpc},
    section::RemoteAgentSection,
    stream::TaskStream,
    wire::{Event, RemoteTask},
};

/// Largest card, in bytes.
const MAX_CARD_BYTES: usize = 256 * 1024;
/// Path of the card below the URL of the agent.
const CARD_PATH: &str = "/.well-known/agent-card.json";
/// The version of the protocol.
const VERSION: HeaderValue = HeaderValue::from_static("1.0");
/// Time without data after which a stream is given up. Servers send comments in silence.
const STREAM_SILENCE: Duration = Duration::from_secs(60);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

/// Sends the requests to one remote agent. It follows no redirects.
#[derive(Debug)]
pub(super) struct PeerClient {
    client: GuardedClient,
    name: AgentName,
    url: Url,
    card_keys: Option<CardKeys>,
    timeout: Duration,
}

/// Why a card was not read, for an operator.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadCardError {
    #[error("{0}")]
    Egress(String),
    #[error("HTTP status {0}; check `url` and `token`")]
    Status(StatusCode),
    #[error(transparent)]
    Card(#[from] CardError),
    #[error("the interface of the card: {0}")]
    Endpoint(String),
}

/// The response to a message.
#[derive(Debug)]
pub(super) enum Sent {
    Whole(Box<Event>),
    Stream(Box<TaskStream>),
}

impl PeerClient {
    /// Creates the client. The section must be valid.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read, or the URL is invalid.
    pub(super) fn new(
        name: AgentName,
        section: &RemoteAgentSection,
        card_keys: Option<CardKeys>,
    ) -> Result<Self, EgressError> {
        let url = section.parsed_url();
        let url = url.ok_or_else(|| EgressError::Invalid("the URL is invalid".into()))?;
        let mut headers = HeaderMap::new();
        headers.insert("a2a-version", VERSION);
        if let Some(authorization) = section.authorization() {
            headers.insert(AUTHORIZATION, authorization);
        }
        let options = ClientOptions {
            headers,
            connect_timeout: section.timeout.min(Duration::from_secs(10)),
            read_timeout: Some(STREAM_SILENCE.max(section.timeout)),
            // So that a request that found no connection is known not to have been sent.
            reuse_connections: false,
            ..ClientOptions::default()
        };
        let client = GuardedClient::new(Arc::new(section.dial_policy()), options)?;
        Ok(Self { client, name, url, card_keys, timeout: section.timeout })
    }

    /// Reads the card.
    ///
    /// # Errors
    /// When it cannot be read, or the agent cannot be used.
    pub(super) async fn card(&self) -> Result<RemoteCard, ReadCardError> {
        let failed = |error: EgressError| ReadCardError::Egress(causes_of(&error));
        let mut url = self.url.clone();
        url.set_path(&format!("{}{CARD_PATH}", self.url.path().trim_end_matches('/')));
        let request = self.client.request(Method::GET, url).map_err(failed)?;
        let request = request.header(ACCEPT, JSON).build();
        let request = request.map_err(|error| failed(error.into()))?;
        let deadline = Instant::now() + self.timeout;
        let response = timeout_at(deadline, self.client.execute(request)).await;
        let response = response.unwrap_or(Err(EgressError::TimedOut)).map_err(failed)?;
        if response.status() != StatusCode::OK {
            return Err(ReadCardError::Status(response.status()));
        }
        let body = read_body(response, MAX_CARD_BYTES, Some(deadline)).await.map_err(failed)?;
        let card = RemoteCard::parse(&self.name, &self.url, self.card_keys.as_ref(), &body)?;
        let refused = self.client.policy().check(&card.endpoint).err();
        match refused {
            Some(error) => Err(ReadCardError::Endpoint(error.to_string())),
            None => Ok(card),
        }
    }

    /// Sends the current message of a task. The agent responds at once, or streams.
    ///
    /// # Errors
    /// See [`CallError`]; its `executed` says whether the message may have run.
    pub(super) async fn send(&self, card: &RemoteCard, record: &Record) -> Result<Sent, CallError> {
        let params = json!({
            "message": record.message(&self.name),
            "configuration": {
                "acceptedOutputModes": ["text/plain", "application/json"],
                "returnImmediately": true,
            },
        });
        let deadline = Instant::now() + self.timeout;
        let method = if card.streams { "SendStreamingMessage" } else { "SendMessage" };
        let response = self.call(card, method, params, deadline).await?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if is_stream {
            return Ok(Sent::Stream(Box::new(TaskStream::new(response))));
        }
        Ok(Sent::Whole(Box::new(read(response, deadline).await?)))
    }

    /// Reads a task.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn task(&self, card: &RemoteCard, id: &str) -> Result<RemoteTask, CallError> {
        self.about(card, "GetTask", id, json!({"id": id, "historyLength": 0})).await
    }

    /// Asks the agent to end a task, and returns it.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn cancel(
        &self,
        card: &RemoteCard,
        id: &str,
    ) -> Result<RemoteTask, CallError> {
        self.about(card, "CancelTask", id, json!({"id": id})).await
    }

    async fn about(
        &self,
        card: &RemoteCard,
        method: &str,
        id: &str,
        params: Value,
    ) -> Result<RemoteTask, CallError> {
        let deadline = Instant::now() + self.timeout;
        let response = self.call(card, method, params, deadline).await?;
        let task: RemoteTask = read(response, deadline).await?;
        if task.id != id {
            return Err(CallError::Invalid("it is about another task".to_owned()));
        }
        Ok(task)
    }

    async fn call(
        &self,
        card: &RemoteCard,
        method: &str,
        params: Value,
        deadline: Instant,
    ) -> Result<reqwest::Response, CallError> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self.client.request(Method::POST, card.endpoint.clone());
        let request = request.map_err(|error| CallError::from_egress(&error))?;
        let request = request.header(CONTENT_TYPE, JSON).header(ACCEPT, EVENTS);
        let mut request = request.body(body.to_string());
        if let Some(parent) = trace::current().parent {
            request = request.header(TRACEPARENT, &*parent);
        }
        let request = request.build();
        let request = request.map_err(|error| CallError::from_egress(&error.into()))?;
        let signal = ConnectionSignal::default();
        let sending = self.client.execute_with_signal(request, &signal);
        let response = match timeout_at(deadline, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Err(match CallError::from_egress(&error) {
                    CallError::Cut(reason) if !signal.is_connected() => CallError::NotSent(reason),
                    error => error,
                });
            }
            Err(_) if signal.is_connected() => {
                return Err(CallError::Cut("no response in time".to_owned()));
            }
            Err(_) => return Err(CallError::NotSent("no connection in time".to_owned())),
        };
        let status = response.status();
        debug!(agent = %self.name, method, %status, "request sent to a remote agent");
        match status.as_u16() {
            200..=299 => Ok(response),
            401 | 403 => Err(CallError::Unauthorized),
            300..=499 => Err(CallError::Status(status.as_u16())),
            // A server error says nothing about what ran before it.
            _ => Err(CallError::Cut(format!("HTTP status {}", status.as_u16()))),
        }
    }
}

async fn read<T: DeserializeOwned>(
    response: reqwest::Response,
    deadline: Instant,
) -> Result<T, CallError> {
    let body = read_body(response, MAX_BODY_BYTES, Some(deadline)).await;
    read_rpc(&body.map_err(|error| CallError::from_egress(&error))?)
}
