//! A server that gives prepared answers, one after another, and keeps what it was asked.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::Response,
};
use futures_util::stream::{self, StreamExt};
use rockbot_llm::{KeySource, OpenAiModel, OpenAiSettings};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

/// One prepared answer.
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    chunks: Vec<Vec<u8>>,
    then: Then,
}

enum Then {
    End,
    Break,
    Hang,
}

impl Reply {
    pub(crate) fn status(status: u16, body: &str) -> Self {
        let chunks = vec![body.as_bytes().to_vec()];
        Self { status, headers: Vec::new(), chunks, then: Then::End }
    }

    /// A stream of these events, and its proper end.
    pub(crate) fn events(events: &[Value]) -> Self {
        Self::stream(&[sse(events).as_str(), "data: [DONE]\n\n"].concat())
    }

    /// A stream with exactly this text.
    pub(crate) fn stream(body: &str) -> Self {
        Self::status(200, body).header("content-type", "text/event-stream")
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends the body in pieces of so many bytes.
    pub(crate) fn in_chunks_of(mut self, size: usize) -> Self {
        self.chunks = self.chunks.concat().chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    /// Breaks the connection where the body should end.
    pub(crate) fn then_break(mut self) -> Self {
        self.then = Then::Break;
        self
    }

    /// Sends nothing more, and keeps the connection.
    pub(crate) fn then_hang(mut self) -> Self {
        self.then = Then::Hang;
        self
    }

    fn into_response(self) -> Response {
        let chunks = self.chunks.into_iter().map(|chunk| io::Result::Ok(Bytes::from(chunk)));
        // Yielding lets the server flush each chunk before it sees what follows.
        let chunks = stream::iter(chunks).then(|chunk| async {
            tokio::task::yield_now().await;
            chunk
        });
        let body = match self.then {
            Then::End => Body::from_stream(chunks),
            Then::Break => {
                let broken = stream::once(async {
                    tokio::task::yield_now().await;
                    Err(io::Error::other("broken"))
                });
                Body::from_stream(chunks.chain(broken))
            }
            Then::Hang => Body::from_stream(chunks.chain(stream::pending())),
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

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A running server; it stops when dropped.
pub(crate) struct Server {
    pub(crate) base_url: String,
    script: Script,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let script = Script::default();
        lock(&script.replies).extend(replies);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let app = Router::new().fallback(reply).with_state(script.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { base_url, script, task }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.script.asked).clone()
    }

    pub(crate) fn model(&self) -> OpenAiModel {
        self.model_with(|_| ())
    }

    pub(crate) fn model_with(&self, change: impl FnOnce(&mut OpenAiSettings)) -> OpenAiModel {
        let mut settings = OpenAiSettings {
            base_url: self.base_url.clone(),
            model: "test-model".to_owned(),
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
    // Another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    OpenAiModel::new(settings).unwrap()
}

async fn reply(
    State(script): State<Script>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Infallible> {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    lock(&script.asked).push(Asked { path: uri.path().to_owned(), headers, body });
    let reply = lock(&script.replies).pop_front();
    let status = StatusCode::IM_A_TEAPOT.as_u16();
    Ok(reply.unwrap_or_else(|| Reply::status(status, "asked once too often")).into_response())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
