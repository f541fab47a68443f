//! Requests that are sent five times over two gateways, one of which is killed while the first request runs.

use rockbot_testkit::fixture::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{
    api_client::{A2A_VERSION, Client, a2a_message, mcp_call, read_response, rpc_request},
    harness::{GatewayFleet, Gateways},
};
use crate::process::Running;

/// The key of a request, as a header line.
const KEY: &str = "idempotency-key: key-1\r\n";

/// A request with an identity of its own.
struct Repeated {
    path: &'static str,
    /// Whole lines.
    headers: String,
    body: Value,
    /// JSON pointer to the id in the response.
    id: &'static str,
}

impl Repeated {
    async fn open(&self, client: &Client) -> TcpStream {
        client.send("POST", self.path, &self.headers, &self.body.to_string()).await
    }

    /// Returns the id in a response, which must have the answer.
    async fn id_in(&self, connection: TcpStream) -> Value {
        let (status, body) = read_response(connection).await;
        assert_eq!(status, 200, "{}: {body}", self.path);
        assert!(body.to_string().contains("a result"), "{}: {body}", self.path);
        let id = body.pointer(self.id).unwrap_or_else(|| panic!("{}: {body}", self.path));
        assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{}: {body}", self.path);
        id.clone()
    }
}

/// Gateways of which the first was killed while a request ran, and started again.
struct AfterKill {
    fleet: GatewayFleet,
    _restarted: Running,
    at_restarted: Client,
    _second: Running,
    at_second: Client,
}

impl AfterKill {
    /// Sends the request to the first gateway, and kills that while the tool runs.
    async fn start(fleet: GatewayFleet, gateways: Gateways, request: TcpStream) -> Self {
        wait_until("the tool runs", || fleet.runs() > 0).await;
        let Gateways { first, at_first, second, at_second } = gateways;
        first.send(Signal::KILL);
        drop((first, request));
        let (_restarted, address) = fleet.gateway_with_all_faces("gateway-0").await;
        let at_restarted = Client { address, token: at_first.token };
        Self { fleet, _restarted, at_restarted, _second: second, at_second }
    }

    fn let_the_tool_end(&self) {
        self.fleet.fleet.write("go", "");
    }
}

/// Sends a request five times: once before the kill, twice while the tool runs, and twice after its end.
async fn runs_once(request: &Repeated) {
    let fleet = GatewayFleet::start().await;
    let gateways = Gateways::start(&fleet).await;
    let first = request.open(&gateways.at_first).await;
    let after = AfterKill::start(fleet, gateways, first).await;
    let clients = [&after.at_second, &after.at_restarted];
    let mut open = Vec::new();
    for client in clients {
        open.push(request.open(client).await);
    }
    after.let_the_tool_end();
    let mut ids = Vec::new();
    for connection in open {
        ids.push(request.id_in(connection).await);
    }
    for client in clients {
        ids.push(request.id_in(request.open(client).await).await);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{}: {ids:?}", request.path);
    assert_eq!(after.fleet.runs(), 1, "{}", request.path);
}

#[tokio::test]
async fn repeated_completion_is_one_turn() {
    let body = json!({"model": "assistant", "messages": [{"role": "user", "content": "gate"}]});
    let (path, headers) = ("/v1/chat/completions", KEY.to_owned());
    runs_once(&Repeated { path, headers, body, id: "/id" }).await;
}

#[tokio::test]
async fn repeated_response_is_one_turn() {
    let body = json!({"model": "assistant", "input": "gate"});
    let (path, headers) = ("/v1/responses", KEY.to_owned());
    runs_once(&Repeated { path, headers, body, id: "/id" }).await;
}

#[tokio::test]
async fn repeated_message_of_a2a_is_one_turn_over_json_rpc() {
    let body = rpc_request("SendMessage", &a2a_message("gate"));
    let (path, headers) = ("/agents/assistant", A2A_VERSION.to_owned());
    runs_once(&Repeated { path, headers, body, id: "/result/task/id" }).await;
}

#[tokio::test]
async fn repeated_message_of_a2a_is_one_turn_over_rest() {
    let (path, headers) = ("/agents/assistant/message:send", A2A_VERSION.to_owned());
    runs_once(&Repeated { path, headers, body: a2a_message("gate"), id: "/task/id" }).await;
}

/// Returns a call over MCP with a key.
fn call_with_key(tool: &str, arguments: &Value) -> Repeated {
    let (headers, body) = mcp_call(tool, arguments);
    let headers = headers + KEY;
    Repeated { path: "/mcp", headers, body, id: "/result/_meta/rockbot~1toolCallId" }
}

#[tokio::test]
async fn repeated_call_of_mcp_runs_once() {
    let command = "echo line >> runs.txt; until [ -e go ]; do sleep 0.05; done; echo a result";
    runs_once(&call_with_key("bash", &json!({"command": command}))).await;
}

#[tokio::test]
async fn repeated_message_over_mcp_is_one_turn() {
    runs_once(&call_with_key("agent__assistant", &json!({"message": "gate"}))).await;
}

#[tokio::test]
async fn repeated_message_of_the_api_is_one_turn() {
    let fleet = GatewayFleet::start().await;
    let gateways = Gateways::start(&fleet).await;
    let id = gateways.at_first.start_conversation().await;
    let path = format!("/api/v1/conversations/{id}/messages");
    let headers = "idempotency-key: key-00001\r\n";
    let first = gateways.at_first.send("POST", &path, headers, r#"{"text": "gate"}"#).await;
    let after = AfterKill::start(fleet, gateways, first).await;
    let clients = [&after.at_second, &after.at_restarted];
    let mut ids = Vec::new();
    let mut stream = after.at_second.stream(&format!("conversation:{id}"), None).await;
    for client in clients {
        ids.push(client.say(&id, "gate").await["messageId"].clone());
    }
    after.let_the_tool_end();
    stream.until(|data| data["kind"] == "answer").await;
    for client in clients {
        let repeated = client.say(&id, "gate").await;
        assert_eq!(repeated["state"], "repeated", "{repeated}");
        ids.push(repeated["messageId"].clone());
    }
    assert!(ids.iter().all(|id| id.is_string() && *id == ids[0]), "{ids:?}");
    assert_eq!(after.fleet.runs(), 1);
    for client in clients {
        let snapshot = client.get(&format!("/conversations/{id}")).await;
        let history = snapshot["history"].as_array().expect("items");
        let answers: Vec<_> = history.iter().filter(|item| item["kind"] == "answer").collect();
        assert_eq!(answers.len(), 1, "{snapshot}");
        assert!(answers[0].to_string().contains("a result"), "{snapshot}");
    }
}
