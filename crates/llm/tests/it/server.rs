//! A server that returns canned responses in order, and records its requests.

use std::{collections::VecDeque, convert::Infallible, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::Response,
};
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use rockbot_llm::{KeySource, OpenAiModel, OpenAiSettings};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

/// One prepared response.
pub(crate) struct CannedResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    chunks: Vec<Vec<u8>>,
    end: BodyEnd,
}

/// The end of a body.
enum BodyEnd {
    /// The response is complete.
    Complete,
    /// The connection breaks.
    Abort,
    /// Nothing more is sent, on an open connection.
    Hang,
}

impl CannedResponse {
    pub(crate) fn status(status: u16, body: &str) -> Self {
        let chunks = vec![body.as_bytes().to_vec()];
        Self { status, headers: Vec::new(), chunks, end: BodyEnd::Complete }
    }

    /// A complete stream of these events.
    pub(crate) fn events(events: &[Value]) -> Self {
        Self::stream(&[sse(events).as_str(), "data: [DONE]\n\n"].concat())
    }

    /// A stream with this raw body.
    pub(crate) fn stream(body: &str) -> Self {
        Self::status(200, body).with_header("content-type", "text/event-stream")
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends the body in chunks of `size` bytes.
    pub(crate) fn with_chunk_size(mut self, size: usize) -> Self {
        self.chunks = self.chunks.concat().chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    /// Breaks the connection at the end of the body.
    pub(crate) fn with_abort(mut self) -> Self {
        self.end = BodyEnd::Abort;
        self
    }

    /// Keeps the connection open after the body.
    pub(crate) fn with_hang(mut self) -> Self {
        self.end = BodyEnd::Hang;
        self
    }

    fn into_response(self) -> Response {
        let chunks = self.chunks.into_iter().map(|chunk| io::Result::Ok(Bytes::from(chunk)));
        // Yielding lets the server flush each chunk before the next.
        let chunks = stream::iter(chunks).then(|chunk| async {
            tokio::task::yield_now().await;
            chunk
        });
        let body = match self.end {
            BodyEnd::Complete => Body::from_stream(chunks),
            BodyEnd::Abort => {
                let broken = stream::once(async {
                    tokio::task::yield_now().await;
                    Err(io::Error::other("broken"))
                });
                Body::from_stream(chunks.chain(broken))
            }
            BodyEnd::Hang => Body::from_stream(chunks.chain(stream::pending())),
        };
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(body).unwrap()
    }
}

pub(crate) fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Clone, Default)]
struct Shared {
    responses: Arc<Mutex<VecDeque<CannedResponse>>>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// A running server; it stops when dropped.
pub(crate) struct Server {
    pub(crate) base_url: String,
    shared: Shared,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(responses: impl IntoIterator<Item = CannedResponse>) -> Self {
        let shared = Shared::default();
        shared.responses.lock().extend(responses);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let app = Router::new().fallback(respond).with_state(shared.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { base_url, shared, task }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.lock().clone()
    }

    pub(crate) fn model(&self) -> OpenAiModel {
        self.model_with(|_| ())
    }

    pub(crate) fn model_with(&self, change: impl FnOnce(&mut OpenAiSettings)) -> OpenAiModel {
        let mut settings = OpenAiSettings {
            base_url: self.base_url.clone(),
            model: Some("test-model".to_owned()),
            api_key: Some("sk-test".into()),
            key_source: KeySource::Environment("OPENAI_API_KEY"),
            idle_timeout: Duration::from_secs(20),
            ..OpenAiSettings::default()
        };
        change(&mut settings);
        model(settings)
    }
}

pub(crate) fn model(settings: OpenAiSettings) -> OpenAiModel {
    // Another test may have installed it already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    OpenAiModel::new(settings).unwrap()
}

async fn respond(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Infallible> {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    shared.requests.lock().push(ReceivedRequest { path: uri.path().to_owned(), headers, body });
    let response = shared.responses.lock().pop_front();
    let status = StatusCode::IM_A_TEAPOT.as_u16();
    Ok(response
        .unwrap_or_else(|| CannedResponse::status(status, "unexpected request"))
        .into_response())
}
