//! A minimal HTTP client, and parts of HTTP servers.

use std::time::Duration;

use rockbot_testkit::fixture::within_timeout;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Returns the base URL of a model server, from a variable that `cargo xtask test` sets to
/// `http://host:port/v1`.
pub(crate) fn server(variable: &str) -> String {
    let url = std::env::var(variable);
    url.unwrap_or_else(|_| {
        panic!(
            "this test needs a model server: run `cargo xtask test`, or set {variable} to its base URL"
        )
    })
}

/// Returns `host:port` of a base URL.
pub(crate) fn host(base_url: &str) -> &str {
    let host = base_url.strip_prefix("http://").expect("plain HTTP");
    host.split('/').next().expect("a host")
}

/// Returns the body at `path` on the host of `base_url`.
pub(crate) async fn get(base_url: &str, path: &str) -> String {
    let (status, body) = request(host(base_url), path).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Returns status and body at `path` of `host:port`.
pub(crate) async fn request(host: &str, path: &str) -> (u16, String) {
    let response = within_timeout("a response", async {
        let mut stream = TcpStream::connect(host).await.expect("connected");
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("a response");
        response
    });
    let response = response.await;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// Polls `/readyz` until it has the expected status, and returns its body.
pub(crate) async fn wait_for_readiness(admin: &str, expected: u16) -> String {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let body = async {
        loop {
            ticks.tick().await;
            match request(admin, "/readyz").await {
                (status, body) if status == expected => return body,
                _ => {}
            }
        }
    };
    within_timeout("the readiness", body).await
}

/// Serves each connection with `serve` until the tasks are dropped. Returns the port on 127.0.0.1.
pub(crate) async fn serve_connections<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream));
            while connections.try_join_next().is_some() {}
        }
    });
    (port, tasks)
}

/// Reads a request and returns its body; `None` if the client disconnects or the body is larger than `limit`
/// bytes.
pub(crate) async fn read_body(stream: &mut BufReader<TcpStream>, limit: usize) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok().filter(|length| *length <= limit)?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(body)
}
