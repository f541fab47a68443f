//! A hostile server, independent of the transport.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Exceeds the limit of a message, in bytes.
pub(super) const TOO_LARGE: usize = 17 * 1024 * 1024;

/// The behavior of a hostile server. The name of a tool selects its fault.
#[derive(Clone)]
pub(crate) struct HostileServer {
    /// A permit for each call of `wait` that arrived.
    arrived: Arc<Semaphore>,
    /// A permit for each call of `wait` that may return.
    released: Arc<Semaphore>,
}

impl HostileServer {
    pub(crate) fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), released: Arc::new(Semaphore::new(0)) }
    }

    /// Completes when a call of `wait` has arrived.
    pub(super) async fn wait_called(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Lets one call of `wait` return.
    pub(super) fn release_wait(&self) {
        self.released.add_permits(1);
    }

    /// Returns the reply to a message, possibly an invalid one, or `None` for a notification.
    pub(crate) async fn reply(&self, message: &Value) -> Option<String> {
        let id = message.get("id")?;
        match message["method"].as_str()? {
            "initialize" => Some(result(id, &initialize_result(message))),
            "ping" => Some(result(id, &json!({}))),
            "tools/list" => {
                let tool = json!({"name": "good", "inputSchema": {"type": "object"}});
                Some(result(id, &json!({"tools": [tool]})))
            }
            "tools/call" => Some(self.call(id, message["params"]["name"].as_str()?).await),
            method => Some(method_not_found(id, method)),
        }
    }

    async fn call(&self, id: &Value, tool: &str) -> String {
        match tool {
            "wait" => {
                self.arrived.add_permits(1);
                self.released.acquire().await.unwrap().forget();
                text(id, "waited")
            }
            "garbage" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":}}nonsense"#),
            "half" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"ty"#),
            "huge" => text(id, &"x".repeat(TOO_LARGE)),
            "wrong-id" => text(&json!(999_999), "for another request"),
            other => text(id, other),
        }
    }
}

pub(super) fn text(id: &Value, text: &str) -> String {
    result(id, &json!({"content": [{"type": "text", "text": text}]}))
}

fn initialize_result(message: &Value) -> Value {
    json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    })
}

fn result(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn method_not_found(id: &Value, method: &str) -> String {
    let error = json!({"code": -32601, "message": format!("unknown method {method}")});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}
