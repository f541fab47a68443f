//! Signals of established connections.

use std::sync::Arc;

use reqwest::{Method, Request};
use rockbot_egress::{ClientOptions, ConnectionSignal, GuardedClient};
use tokio::io::AsyncReadExt;

use crate::server::{HOST, Trap, ok, policy, serve_text, url};

fn client(reuse_connections: bool) -> GuardedClient {
    let options = ClientOptions { reuse_connections, ..ClientOptions::default() };
    GuardedClient::new(Arc::new(policy()), options).unwrap()
}

fn post(scheme: &str, port: u16) -> Request {
    Request::new(Method::POST, url(&format!("{scheme}://{HOST}:{port}/")))
}

#[tokio::test]
async fn signal_is_set_when_the_connection_stands() {
    let client = client(false);
    for (scheme, is_connected) in [("https", false), ("http", true)] {
        // It reads what arrives and never replies: of TLS, the first message of the handshake.
        let trap = Trap::bind().await;
        let signal = ConnectionSignal::default();
        let received = async {
            let (mut stream, _) = trap.accept().await;
            stream.read_u8().await.unwrap();
            stream
        };
        tokio::select! {
            sent = client.execute_with_signal(post(scheme, trap.port()), &signal) => {
                panic!("a response: {sent:?}");
            }
            _stream = received => assert_eq!(signal.is_connected(), is_connected, "{scheme}"),
        }
    }
}

#[tokio::test]
async fn failed_connection_sets_no_signal() {
    let trap = Trap::bind().await;
    let port = trap.port();
    drop(trap);
    let signal = ConnectionSignal::default();
    let error = client(false).execute_with_signal(post("http", port), &signal).await.unwrap_err();
    assert!(!error.was_sent() && !signal.is_connected(), "{error:?}");
}

#[tokio::test]
async fn every_request_has_its_own_signal() {
    let port = serve_text(|_| ok("x").replace("connection: close\r\n", "")).await;
    for client in [client(false), client(true)] {
        for _ in 0..3 {
            let signal = ConnectionSignal::default();
            let response = client.execute_with_signal(post("http", port), &signal).await.unwrap();
            assert!(response.text().await.is_ok() && signal.is_connected());
        }
    }
}
