//! The fake of Brave's service behind a real socket, on the real clock.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Response};
use serde_json::json;
use tokio::net::TcpListener;

use super::{fake_brave::FakeBrave, pacing::search_at_once, web_search};
use crate::api::GuardedTransport;

#[tokio::test]
async fn replicas_answer_every_search_over_http() {
    let service = FakeBrave::new(5, 15_000, Duration::from_secs(1_000_000));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base_url = format!("http://{}", listener.local_addr().expect("an address"));
    let fake = service.clone();
    let app = Router::new().fallback(async move || {
        let answer = fake.respond();
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    });
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let replicas = [(); 2].map(|()| {
        let loopback = "127.0.0.0/8".parse().expect("a network");
        let transport = GuardedTransport::new(vec![loopback]).expect("a transport");
        let section = json!({"brave": {"api_key": "key", "base_url": base_url}});
        Arc::new(web_search(section, Arc::new(transport)))
    });
    let failures = search_at_once(&replicas, 5).await;
    server.abort();
    assert_eq!(failures, [""; 0]);
    let accepted = service.statuses().into_iter().filter(|status| *status == 200).count();
    assert_eq!(accepted, 10);
}
