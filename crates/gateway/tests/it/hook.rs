//! A receiver of push notifications.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use parking_lot::Mutex;
use rockbot_testkit::fixture::wait_until;
use serde_json::Value;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};

/// A notification as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) event: Value,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the state of a task or of the update of its status.
    pub(crate) fn state(&self) -> Option<&str> {
        let task = &self.event["task"]["status"]["state"];
        task.as_str().or_else(|| self.event["statusUpdate"]["status"]["state"].as_str())
    }
}

/// Kind of the responses of a hook.
enum Responses {
    /// At once, and whole.
    Usual,
    /// After the semaphore is closed.
    Gated(Semaphore),
    /// With a body that does not end.
    Endless,
}

struct HookState {
    responses: Responses,
    received: Mutex<Vec<Received>>,
    /// Number of requests without a response.
    open: AtomicUsize,
    /// Statuses of the next responses, and where they redirect to. All others are 200.
    next: Mutex<VecDeque<(StatusCode, Option<String>)>>,
}

/// Counts an open request until it is dropped.
struct OpenRequest(Arc<HookState>);

impl OpenRequest {
    fn new(state: Arc<HookState>) -> Self {
        state.open.fetch_add(1, Ordering::SeqCst);
        Self(state)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A server that accepts notifications at every path.
pub(crate) struct Hook {
    address: SocketAddr,
    state: Arc<HookState>,
    serving: JoinHandle<()>,
}

impl Hook {
    pub(crate) async fn start() -> Self {
        Self::responding(Responses::Usual).await
    }

    /// Starts a hook that does not respond before [`release`](Self::release).
    pub(crate) async fn gated() -> Self {
        Self::responding(Responses::Gated(Semaphore::new(0))).await
    }

    /// Starts a hook whose responses have bodies without an end.
    pub(crate) async fn endless() -> Self {
        Self::responding(Responses::Endless).await
    }

    async fn responding(responses: Responses) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, open, next) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        let state = Arc::new(HookState { responses, received, open, next });
        let router = Router::new().fallback(receive).with_state(state.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, serving }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Makes the next response have this status.
    pub(crate) fn answer_next(&self, status: u16, location: Option<String>) {
        let status = StatusCode::from_u16(status).unwrap();
        self.state.next.lock().push_back((status, location));
    }

    /// Returns the number of requests without a response.
    pub(crate) fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Makes a gated hook respond to all requests.
    pub(crate) fn release(&self) {
        if let Responses::Gated(gate) = &self.state.responses {
            gate.close();
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().clone()
    }

    /// Waits until a notification with this state was received, and returns all.
    pub(crate) async fn until(&self, state: &str) -> Vec<Received> {
        let has_state = || self.received().iter().any(|received| received.state() == Some(state));
        wait_until(state, has_state).await;
        self.received()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn receive(State(state): State<Arc<HookState>>, headers: HeaderMap, body: Bytes) -> Response {
    let event = serde_json::from_slice(&body).unwrap();
    state.received.lock().push(Received { headers, event });
    let _open = OpenRequest::new(state.clone());
    match &state.responses {
        Responses::Usual => {}
        // The gate has no permits.
        Responses::Gated(gate) => drop(gate.acquire().await),
        Responses::Endless => {
            let parts =
                stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 64])));
            return Body::from_stream(parts).into_response();
        }
    }
    match state.next.lock().pop_front() {
        Some((status, Some(location))) => (status, [(header::LOCATION, location)]).into_response(),
        Some((status, None)) => status.into_response(),
        None => StatusCode::OK.into_response(),
    }
}
