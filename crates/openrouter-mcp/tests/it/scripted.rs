//! A stand-in for OpenRouter that answers as a test tells it.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tokio::sync::{Notify, mpsc};

/// The key of the account. It must come out nowhere.
pub(crate) const KEY: &str = "sk-or-v1-hunter2hunter2hunter2";

/// What is said to every request.
#[derive(Debug, Clone)]
pub(crate) enum Script {
    /// The path and query of the request, as JSON, with 200.
    Echo,
    /// This status and text, with a `Retry-After` of 7 s.
    Say(u16, String),
    /// Letters without end.
    Endless,
    /// Nothing.
    Silence,
    /// As `Echo`, once the test has released it.
    Hold(Arc<Notify>),
}

/// A running stand-in; it ends with the test.
pub(crate) struct ScriptedOpenRouter {
    pub(crate) url: String,
    /// Requests as they come: method, path and query, and the `Authorization`.
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

    pub(crate) fn now_says(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let target = request.uri().path_and_query().unwrap().as_str();
    let authorization = request.headers()["authorization"].to_str().unwrap();
    let seen = format!("{} {target} {authorization}", request.method());
    shared.requests.send(seen).await.unwrap();
    let script = shared.script.lock().unwrap().clone();
    let echo = format!(r#"{{"data": {target:?}}}"#);
    match script {
        Script::Echo => echo.into_response(),
        Script::Say(status, text) => {
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("retry-after", "7"), ("location", "/elsewhere")], text).into_response()
        }
        Script::Endless => {
            let letters = futures_util::stream::repeat_with(|| {
                Ok::<_, std::convert::Infallible>(Bytes::from_static(&[b'1'; 4096]))
            });
            Body::from_stream(letters).into_response()
        }
        Script::Silence => std::future::pending().await,
        Script::Hold(released) => {
            released.notified().await;
            echo.into_response()
        }
    }
}
