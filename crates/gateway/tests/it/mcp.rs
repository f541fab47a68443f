//! The MCP face behind the guard.

use rockbot_gateway::{FaceName, NamePatterns, Right, Token};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    http::Request,
};

/// Creates a request of revision 2026-07-28.
fn request(token: &str, method: &str, mut params: Value) -> Request {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let name = params["name"].as_str().map(str::to_owned);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = Request::post("/mcp", &body)
        .token(token)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    match name {
        Some(name) => request.header("mcp-name", &name),
        None => request,
    }
}

async fn result(gateway: &TestGateway, request: Request) -> Value {
    let response = request.send(gateway.address).await;
    assert_eq!(response.status, 200, "{response:?}");
    let message = response.body.lines().find(|line| line.contains("jsonrpc")).unwrap();
    let start = message.find('{').unwrap();
    let end = message.rfind('}').unwrap();
    serde_json::from_str(&message[start..=end]).unwrap()
}

fn ask(token: &str, message: &str) -> Request {
    let arguments = json!({"message": message});
    request(token, "tools/call", json!({"name": "agent__assistant", "arguments": arguments}))
}

#[tokio::test]
async fn agents_are_tools_of_a_token() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.token("editor", FaceName::Mcp, &[Right::Talk]).await;
    let listed = result(&gateway, request(&token, "tools/list", json!({}))).await;
    let names: Vec<_> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["agent__absent", "agent__assistant"]);
    let answer = result(&gateway, ask(&token, "hello")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "You said hello.", "{answer}");
    let absent = request(
        &token,
        "tools/call",
        json!({"name": "agent__absent", "arguments": {"message": "hello"}}),
    );
    let absent = result(&gateway, absent).await;
    assert_eq!(absent["result"]["structuredContent"]["error"]["executed"], "no", "{absent}");
}

#[tokio::test]
async fn token_limits_agents() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let limited = |token: Token| Token {
        agents: NamePatterns::new(vec!["absent".to_owned()]),
        rights: [Right::Talk].into(),
        ..token
    };
    let limited = gateway.token_with("limited", FaceName::Mcp, limited).await;
    let silent = gateway.token("silent", FaceName::Mcp, &[Right::Watch]).await;
    for token in [limited, silent] {
        let refused = result(&gateway, ask(&token, "hello")).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(refused["error"]["data"]["executed"], "no", "{refused}");
    }
    assert_eq!(fleet.model.request_count(), 0);
}

#[tokio::test]
async fn repeated_call_is_one_turn_over_two_gateways() {
    let fleet = Fleet::start().await;
    let gateways = [fleet.gateway().await, fleet.gateway().await];
    let mut tokens = Vec::new();
    for gateway in &gateways {
        tokens.push(gateway.token("editor", FaceName::Mcp, &[Right::Talk]).await);
    }
    for (gateway, token) in gateways.iter().zip(&tokens).cycle().take(5) {
        let answer = ask(token, "hello").header("idempotency-key", "one");
        let answer = result(gateway, answer).await;
        assert_eq!(answer["result"]["content"][0]["text"], "You said hello.", "{answer}");
    }
    assert_eq!(fleet.model.request_count(), 1);
}
