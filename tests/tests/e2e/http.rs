//! A minimal HTTP client for inspecting a model server.

use rockbot_testkit::fixture::within_timeout;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A server of the test run, from a variable that `cargo xtask test` sets to `http://host:port/v1`.
pub(crate) fn server(variable: &str) -> String {
    let url = std::env::var(variable);
    url.unwrap_or_else(|_| {
        panic!(
            "this test needs a model server: run `cargo xtask test`, or set {variable} to the base \
             URL of one that tests may use"
        )
    })
}

/// `host:port` of a base URL.
pub(crate) fn host_of(base_url: &str) -> &str {
    let host = base_url.strip_prefix("http://").expect("plain HTTP");
    host.split('/').next().expect("a host")
}

/// The body at `path`, beside the API at `base_url`.
pub(crate) async fn get(base_url: &str, path: &str) -> String {
    let (status, body) = ask(host_of(base_url), path).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// The status and the body at `path` of `host:port`.
pub(crate) async fn ask(host: &str, path: &str) -> (u16, String) {
    let answer = within_timeout("an answer", async {
        let mut stream = TcpStream::connect(host).await.expect("connected");
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    });
    let answer = answer.await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}
