//! What a server says that tries everything, whatever it is said over.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// More than a message may have.
pub(super) const TOO_LARGE: usize = 17 * 1024 * 1024;

/// A server's conduct, the same over each transport.
#[derive(Clone)]
pub(crate) struct Hostile {
    waiting: Arc<Semaphore>,
    released: Arc<Semaphore>,
}

impl Hostile {
    pub(crate) fn new() -> Self {
        Self { waiting: Arc::new(Semaphore::new(0)), released: Arc::new(Semaphore::new(0)) }
    }

    /// Returns when a call of `wait` has arrived.
    pub(super) async fn waits(&self) {
        self.waiting.acquire().await.unwrap().forget();
    }

    /// Lets one call of `wait` be answered.
    pub(super) fn release(&self) {
        self.released.add_permits(1);
    }

    /// The text that answers a message, whether or not it is valid; none to a notification.
    pub(crate) async fn answer(&self, message: &Value) -> Option<String> {
        let id = message.get("id")?;
        match message["method"].as_str()? {
            "initialize" => Some(result(id, &initialized(message))),
            "ping" => Some(result(id, &json!({}))),
            "tools/list" => {
                let tool = json!({"name": "good", "inputSchema": {"type": "object"}});
                Some(result(id, &json!({"tools": [tool]})))
            }
            "tools/call" => Some(self.call(id, message["params"]["name"].as_str()?).await),
            method => Some(no_method(id, method)),
        }
    }

    async fn call(&self, id: &Value, tool: &str) -> String {
        match tool {
            "wait" => {
                self.waiting.add_permits(1);
                self.released.acquire().await.unwrap().forget();
                text(id, "waited")
            }
            "garbage" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":}}nonsense"#),
            "half" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"ty"#),
            "huge" => text(id, &"x".repeat(TOO_LARGE)),
            "wrong-id" => text(&json!(999_999), "for somebody else"),
            other => text(id, other),
        }
    }
}

pub(super) fn text(id: &Value, text: &str) -> String {
    result(id, &json!({"content": [{"type": "text", "text": text}]}))
}

fn initialized(message: &Value) -> Value {
    json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    })
}

fn result(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn no_method(id: &Value, method: &str) -> String {
    let error = json!({"code": -32601, "message": format!("no method {method}")});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}
