//! A model server that can stop in the middle of a chosen response.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
};

use crate::http;

const MAX_REQUEST: usize = 1024 * 1024;
/// Beginning of the first response, before its call.
pub(super) const FIRST_WORDS: &str = "First a command.";

/// The point at which the server stops, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stall {
    /// At the request for this response, counted from 0.
    BeforeResponse(usize),
    /// After the first words of the first response.
    InFirstResponse,
}

/// A model that calls a command, and then answers `done`. Dropping it closes its connections.
pub(super) struct ModelServer {
    port: u16,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    stall: Stall,
    command: &'static str,
    /// Has a permit until the server stopped.
    left: Semaphore,
    /// Has a permit after the server stopped.
    stalled: Semaphore,
    /// Has a permit when the server may continue.
    released: Semaphore,
}

impl ModelServer {
    pub(super) async fn start(command: &'static str, stall: Stall) -> Self {
        let (left, stalled, released) = (Semaphore::new(1), Semaphore::new(0), Semaphore::new(0));
        let state = Arc::new(State { stall, command, left, stalled, released });
        let served = state.clone();
        let serve = move |stream| {
            let state = served.clone();
            // The client may disconnect at any time.
            async move { drop(state.serve(stream).await) }
        };
        let (port, tasks) = http::serve_connections(serve).await;
        Self { port, state, _tasks: tasks }
    }

    /// Returns the base URL of the API.
    pub(super) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Waits until the server stopped in a response.
    pub(super) async fn stalled(&self) {
        self.state.stalled.acquire().await.expect("not closed").forget();
    }

    /// Lets the server continue.
    pub(super) fn release(&self) {
        self.state.released.add_permits(1);
    }
}

impl State {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let Some(body) = http::read_body(&mut stream, MAX_REQUEST).await else { return Ok(()) };
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let last = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
        let assistant = |message: &&Value| message["role"] == "assistant";
        let response = messages[last..].iter().filter(assistant).count();
        self.stall_at(Stall::BeforeResponse(response), &mut stream).await;
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        if response > 0 {
            write_chunk(&mut stream, &json!({"content": "done"}), None).await?;
            return finish(&mut stream, "stop").await;
        }
        write_chunk(&mut stream, &json!({"content": FIRST_WORDS}), None).await?;
        stream.flush().await?;
        self.stall_at(Stall::InFirstResponse, &mut stream).await;
        let arguments = json!({"command": self.command}).to_string();
        let function = json!({"name": "bash", "arguments": arguments});
        let call = json!([{"index": 0, "id": "call-1", "type": "function", "function": function}]);
        write_chunk(&mut stream, &json!({"tool_calls": call}), None).await?;
        finish(&mut stream, "tool_calls").await
    }

    /// Stops here until it may continue or the client is gone, if this is the point and nothing stopped before.
    async fn stall_at(&self, point: Stall, stream: &mut BufReader<TcpStream>) {
        if point == self.stall
            && let Ok(permit) = self.left.try_acquire()
        {
            permit.forget();
            self.stalled.add_permits(1);
            tokio::select! {
                _ = stream.read_u8() => {}
                _ = self.released.acquire() => {}
            }
        }
    }
}

/// Writes a chunk of a streamed response.
pub(super) async fn write_chunk(
    stream: &mut BufReader<TcpStream>,
    delta: &Value,
    finish: Option<&str>,
) -> std::io::Result<()> {
    let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await
}

/// Ends a streamed response.
pub(super) async fn finish(stream: &mut BufReader<TcpStream>, reason: &str) -> std::io::Result<()> {
    write_chunk(stream, &json!({}), Some(reason)).await?;
    stream.write_all(b"data: [DONE]\n\n").await?;
    stream.shutdown().await
}
