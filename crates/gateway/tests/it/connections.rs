//! Connections that send too slowly, too little, or nothing.

use rockbot_gateway::{FaceName, Right};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{fleet::Fleet, http::Request};

#[tokio::test]
async fn half_open_connections_do_not_keep_requests_out() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with("max_connections = 256").await;
    let mut half_open = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(b"GET /v1/models HTTP/1.1\r\nhost: ").await.unwrap();
        half_open.push(stream);
    }
    let response = Request::get("/v1/models").send(gateway.address).await;
    assert_eq!(response.status, 401);
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_refused() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let request = Request::post("/api/v1/session", &serde_json::json!({"code": "x"}));
    let request = request.header("origin", &format!("http://{}", gateway.address));
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(request.head(gateway.address).as_bytes()).await.unwrap();
    stream.write_all(b"{").await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(status, *b"HTTP/1.1 408");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_streams_need_little_memory() {
    const STREAMS: usize = 1000;
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with("messages_per_minute = 6000\nmax_connections = 1024").await;
    let mut tokens = Vec::new();
    for number in 0..4 {
        let name = format!("program-{number}");
        tokens.push(gateway.token(&name, FaceName::Openai, &[Right::Talk]).await);
    }
    let body = serde_json::json!({
        "model": "assistant", "stream": true,
        "messages": [{"role": "user", "content": "wait for me"}],
    });
    let before = resident_bytes();
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let request = Request::post("/v1/chat/completions", &body).token(&tokens[number % 4]);
        let mut stream = request.open(gateway.address).await;
        stream.read_until("\"role\"").await;
        streams.push(stream);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 * 1024 * 1024, "{STREAMS} streams took {grown} bytes");
    // Every one of them is alive.
    fleet.model.gate.add_permits(STREAMS);
    for stream in &mut streams {
        stream.read_until("data: [DONE]").await;
    }
}

/// Returns the resident memory of this process, with the agent, the gateway and the clients.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn stop_waits_for_open_streams() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let secret = gateway.openai_token().await;
    let body = serde_json::json!({
        "model": "assistant", "stream": true,
        "messages": [{"role": "user", "content": "wait for me"}],
    });
    let mut stream =
        Request::post("/v1/chat/completions", &body).token(&secret).open(gateway.address).await;
    stream.read_until("You said").await;
    let stopping = tokio::spawn(gateway.stop());
    fleet.model.gate.add_permits(1);
    stream.read_until("data: [DONE]").await;
    stream.read_to_end().await;
    stopping.await.unwrap();
}
