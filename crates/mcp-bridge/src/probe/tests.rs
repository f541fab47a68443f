use rmcp::{ClientHandler, model::ClientCapabilities, service::serve_client_with_lifecycle};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::client::Client;

/// A transport in memory, whose peer sends and receives JSON.
struct Pipe {
    sent: mpsc::Sender<Value>,
    received: mpsc::Receiver<Value>,
}

impl Transport<RoleClient> for Pipe {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (sent, message) = (self.sent.clone(), json!(message));
        async move { sent.send(message).await.map_err(std::io::Error::other) }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        serde_json::from_value(self.received.recv().await?).ok()
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The server's end of a pipe.
struct Server {
    requests: mpsc::Receiver<Value>,
    replies: mpsc::Sender<Value>,
}

impl Server {
    /// Receives a request with the expected method, and returns its id.
    async fn expect(&mut self, method: &str) -> Value {
        let request = self.requests.recv().await.expect("a request");
        assert_eq!(request["method"], method);
        request["id"].clone()
    }

    async fn reply(&self, id: &Value, key: &str, value: Value) {
        let reply = json!({"jsonrpc": "2.0", "id": id, key: value});
        self.replies.send(reply).await.expect("the client receives");
    }
}

fn pipe() -> (Pipe, Server) {
    let (sent, requests) = mpsc::channel(8);
    let (replies, received) = mpsc::channel(8);
    (Pipe { sent, received }, Server { requests, replies })
}

fn initialize_result() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "serverInfo": {"name": "slow", "version": "1"}})
}

fn discover_result() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
        "ttlMs": 0, "cacheScope": "private"})
}

fn unknown_method() -> Value {
    json!({"code": -32601, "message": "unknown method"})
}

fn client() -> Client {
    Client::new(ClientCapabilities::default())
}

async fn detect(pipe: Pipe) -> Result<(Era, ProbedTransport<Pipe>), ProbeError> {
    probe(pipe, &client().get_info(), Pairing::Stream).await
}

/// Opens a session on a probed transport, which must send nothing but a notification.
async fn open(era: Era, transport: ProbedTransport<Pipe>) {
    let opened = serve_client_with_lifecycle(client(), transport, era.lifecycle()).await;
    opened.map(drop).expect("a session");
}

#[tokio::test(start_paused = true)]
async fn slow_server_of_older_era_is_detected_in_its_first_session() {
    let (pipe, mut server) = pipe();
    let serving = tokio::spawn(async move {
        let discover = server.expect("server/discover").await;
        let initialize = server.expect("initialize").await;
        server.reply(&discover, "error", unknown_method()).await;
        server.reply(&initialize, "result", initialize_result()).await;
        assert!(server.expect("notifications/initialized").await.is_null());
    });
    let (era, transport) = detect(pipe).await.ok().expect("an era");
    assert_eq!(era, Era::Handshake);
    open(era, transport).await;
    serving.await.expect("the server got what it expects");
}

#[tokio::test(start_paused = true)]
async fn slow_server_of_newer_era_is_detected_in_its_first_session() {
    let (pipe, mut server) = pipe();
    let serving = tokio::spawn(async move {
        let discover = server.expect("server/discover").await;
        let initialize = server.expect("initialize").await;
        server.reply(&initialize, "error", unknown_method()).await;
        server.reply(&discover, "result", discover_result()).await;
    });
    let (era, transport) = detect(pipe).await.ok().expect("an era");
    assert_eq!(era, Era::Stateless);
    open(era, transport).await;
    serving.await.expect("the server got what it expects");
}

#[tokio::test(start_paused = true)]
async fn late_reply_to_probe_is_dropped() {
    let (pipe, mut server) = pipe();
    let serving = tokio::spawn(async move {
        let discover = server.expect("server/discover").await;
        let initialize = server.expect("initialize").await;
        server.reply(&initialize, "result", initialize_result()).await;
        server.reply(&discover, "error", unknown_method()).await;
        server.reply(&json!(7), "result", json!({})).await;
    });
    let (_, mut transport) = detect(pipe).await.ok().expect("an era");
    let next = json!(transport.receive().await.expect("a message"));
    assert_eq!(next["id"], 7);
    serving.await.expect("the server got what it expects");
}

#[tokio::test(start_paused = true)]
async fn prompt_replies_decide_without_handshake() {
    for (key, reply, expected) in [
        ("result", json!({}), Era::Handshake),
        ("result", initialize_result(), Era::Handshake),
        ("result", discover_result(), Era::Stateless),
        ("error", unknown_method(), Era::Handshake),
        (
            "error",
            json!({"code": -32022, "message": "", "data": {"supported": ["2025-11-25"]}}),
            Era::Handshake,
        ),
    ] {
        let (pipe, mut server) = pipe();
        let (answer, shown) = (reply.clone(), reply.to_string());
        let serving = tokio::spawn(async move {
            let discover = server.expect("server/discover").await;
            server.reply(&discover, key, answer).await;
            server
        });
        let (era, _) = detect(pipe).await.ok().expect("an era");
        assert_eq!(era, expected, "{shown}");
        let mut server = serving.await.expect("the server got what it expects");
        assert!(server.requests.try_recv().is_err(), "{shown}: no handshake is sent");
    }
}

#[tokio::test(start_paused = true)]
async fn unusable_server_of_newer_era_is_reported() {
    for error in [
        json!({"code": -32022, "message": "", "data": {"supported": ["2099-01-01"]}}),
        json!({"code": -32021, "message": "sampling is required"}),
    ] {
        let (pipe, mut server) = pipe();
        let reply = error.clone();
        tokio::spawn(async move {
            let discover = server.expect("server/discover").await;
            server.reply(&discover, "error", reply).await;
        });
        assert!(matches!(detect(pipe).await, Err(ProbeError::Failed(_))), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn closed_session_is_unanswered() {
    let (pipe, server) = pipe();
    drop(server);
    assert!(matches!(detect(pipe).await, Err(ProbeError::Unanswered)));
}
