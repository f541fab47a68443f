//! The fake of Brave's service behind a real socket, on the real clock.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Response};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::{super::tool::WebSearch, fake_brave::FakeBrave, pacing::search_at_once, web_search};
use crate::api::GuardedTransport;

/// A service at a port of this machine, until it is dropped.
pub(super) struct Served {
    pub(super) base_url: String,
    _task: AbortOnDropHandle<()>,
}

impl Served {
    /// Creates the tool with this service.
    pub(super) fn web_search(&self) -> WebSearch {
        let loopback = "127.0.0.0/8".parse().expect("a network");
        let transport = GuardedTransport::new(vec![loopback]).expect("a transport");
        let section = json!({"brave": {"api_key": "key", "base_url": self.base_url}});
        web_search(section, Arc::new(transport))
    }
}

/// Serves a fake at every path.
pub(super) async fn serve(service: Arc<FakeBrave>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base_url = format!("http://{}", listener.local_addr().expect("an address"));
    let app = Router::new().fallback(async move || {
        let answer = service.respond();
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    });
    let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("a server") });
    Served { base_url, _task: AbortOnDropHandle::new(task) }
}

#[tokio::test]
async fn replicas_answer_every_search_over_http() {
    let service = FakeBrave::new(5, 15_000, Duration::from_secs(1_000_000));
    let server = serve(service.clone()).await;
    let replicas = [(); 2].map(|()| Arc::new(server.web_search()));
    assert_eq!(search_at_once(&replicas, 5).await, [""; 0]);
    let accepted = service.statuses().into_iter().filter(|status| *status == 200).count();
    assert_eq!(accepted, 10);
}
