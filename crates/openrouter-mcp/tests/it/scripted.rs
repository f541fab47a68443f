//! A fake OpenRouter whose responses a test controls.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tokio::sync::{Notify, mpsc};

/// The key of the account. It must never appear in output.
pub(crate) const KEY: &str = "sk-or-v1-hunter2hunter2hunter2";

/// The response to every request.
#[derive(Debug, Clone)]
pub(crate) enum Script {
    /// The path and query of the request, as JSON, with 200.
    Echo,
    /// This status and body, with a `Retry-After` of 7 s.
    Respond(u16, String),
    /// An endless body.
    Endless,
    /// No response.
    Silent,
    /// Like `Echo`, after the test releases it.
    Hold(Arc<Notify>),
}

/// A running fake; it stops with the test.
pub(crate) struct ScriptedOpenRouter {
    pub(crate) url: String,
    /// Received requests: method, path with query, and the `Authorization` header.
    pub(crate) requests: mpsc::Receiver<String>,
    script: Arc<Mutex<Script>>,
}

#[derive(Clone)]
struct Shared {
    script: Arc<Mutex<Script>>,
    requests: mpsc::Sender<String>,
}

impl ScriptedOpenRouter {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/v1", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(script));
        let (sender, requests) = mpsc::channel(1024);
        let shared = Shared { script: Arc::clone(&script), requests: sender };
        let router = Router::new().fallback(answer).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests, script }
    }

    pub(crate) fn set_script(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let target = request.uri().path_and_query().unwrap().as_str();
    let authorization = request.headers()["authorization"].to_str().unwrap();
    let received = format!("{} {target} {authorization}", request.method());
    shared.requests.send(received).await.unwrap();
    let script = shared.script.lock().unwrap().clone();
    let echo = format!(r#"{{"data": {target:?}}}"#);
    match script {
        Script::Echo => echo.into_response(),
        Script::Respond(status, text) => {
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("retry-after", "7"), ("location", "/elsewhere")], text).into_response()
        }
        Script::Endless => {
            let chunks = futures_util::stream::repeat_with(|| {
                Ok::<_, std::convert::Infallible>(Bytes::from_static(&[b'1'; 4096]))
            });
            Body::from_stream(chunks).into_response()
        }
        Script::Silent => std::future::pending().await,
        Script::Hold(released) => {
            released.notified().await;
            echo.into_response()
        }
    }
}
