//! The MCP face behind the guard.

use std::time::Instant;

use rockbot_gateway::{FaceName, NamePatterns, Right, Token};
use rockbot_testkit::fixture::wait_until;
use serde_json::{Value, json};

use crate::{
    audit_records::AuditRecords,
    fleet::{Fleet, TestGateway},
    handler::Handler,
    http::Request,
};

/// Creates a request of a program, of revision 2026-07-28.
fn request(token: &str, method: &str, params: Value) -> Request {
    unsigned(method, params).token(token)
}

/// Creates a request without a credential.
fn unsigned(method: &str, mut params: Value) -> Request {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let name = params["name"].as_str().map(str::to_owned);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = Request::post("/mcp", &body)
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
async fn token_limits_tools() {
    let fleet = Fleet::start().await;
    let handler = Handler::start(&fleet).await;
    let gateway = fleet.gateway().await;
    let limited =
        |token: Token| Token { tools: NamePatterns::new(vec!["re*".to_owned()]), ..token };
    let limited = gateway.token_with("limited", FaceName::Mcp, limited).await;
    let listed = result(&gateway, request(&limited, "tools/list", json!({}))).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1, "{listed}");
    assert_eq!(tools[0]["name"], "read");
    let call = |tool: &str| {
        let arguments = json!({"text": "hello"});
        request(&limited, "tools/call", json!({"name": tool, "arguments": arguments}))
    };
    let refused = result(&gateway, call("write")).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"]["data"]["executed"], "no", "{refused}");
    assert_eq!(handler.runs(), 0);
    let read = result(&gateway, call("read")).await;
    assert_eq!(read["result"]["content"][0]["text"], "hello in run 1", "{read}");
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

/// Creates a request of a person in a browser to an agent.
fn ask_as_person(gateway: &TestGateway, cookie: &str) -> Request {
    let arguments = json!({"message": "hello"});
    let request =
        unsigned("tools/call", json!({"name": "agent__assistant", "arguments": arguments}));
    let origin = format!("http://{}", gateway.address);
    request.header("cookie", cookie).header("origin", &origin)
}

/// Asks an agent until a request is refused. Returns the refusal and the number of answers.
async fn ask_until_refused(gateway: &TestGateway, cookie: &str) -> (Value, usize) {
    let mut answers = 0;
    loop {
        let answer = result(gateway, ask_as_person(gateway, cookie)).await;
        if answer["result"]["isError"] == true {
            return (answer, answers);
        }
        assert_eq!(answer["result"]["content"][0]["text"], "You said hello.", "{answer}");
        answers += 1;
    }
}

#[tokio::test]
async fn calls_of_a_person_count_as_messages() {
    let records = AuditRecords::capture();
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with("messages_per_minute = 2").await;
    let cookie = gateway.log_in().await;
    let started = Instant::now();
    let (refused, answers) = ask_until_refused(&gateway, &cookie).await;
    // Half a minute adds one call.
    let added = usize::try_from(started.elapsed().as_secs() / 30).unwrap();
    assert!((2..=2 + added).contains(&answers), "{answers}");
    let error = &refused["result"]["structuredContent"]["error"];
    assert_eq!((&error["code"], &error["executed"]), (&json!("overloaded"), &json!("no")));
    assert_eq!(records.outcomes("tool_call").last().unwrap(), "rate_limited");
    assert_eq!(fleet.model.request_count(), answers);
    // A token has a rate of its own, or none.
    let token = gateway.token("editor", FaceName::Mcp, &[Right::Talk]).await;
    for _ in 0..3 {
        let answer = result(&gateway, ask(&token, "hello")).await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
}

#[tokio::test]
async fn repeated_call_of_a_person_is_not_refused_by_the_rate() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with("messages_per_minute = 2").await;
    let cookie = gateway.log_in().await;
    let ask = || ask_as_person(&gateway, &cookie).header("idempotency-key", "one");
    let first = result(&gateway, ask()).await;
    assert_eq!(first["result"]["content"][0]["text"], "You said hello.", "{first}");
    ask_until_refused(&gateway, &cookie).await;
    let turns = fleet.model.request_count();
    let repeated = result(&gateway, ask()).await;
    assert_eq!(repeated["result"]["content"], first["result"]["content"], "{repeated}");
    assert_eq!(fleet.model.request_count(), turns);
}

#[tokio::test]
async fn call_has_two_audit_records_without_content() {
    let records = AuditRecords::capture();
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.token("editor", FaceName::Mcp, &[Right::Talk]).await;
    let answer = result(&gateway, ask(&token, "a secret")).await;
    let absent = json!({"name": "agent__absent", "arguments": {"message": "a secret"}});
    result(&gateway, request(&token, "tools/call", absent)).await;
    let outcomes = records.outcomes("tool_call");
    assert_eq!(outcomes, ["sent", "ok, executed: yes", "sent", "unavailable, executed: no"]);
    let found = records.with_action("tool_call");
    let id = answer["result"]["_meta"]["rockbot/toolCallId"].as_str().unwrap();
    for record in &found[..2] {
        assert_eq!(record["detail"], format!("agent__assistant {id}"));
        assert_eq!(
            (&record["subject"], &record["credential"]),
            (&json!("token:editor"), &json!("token"))
        );
    }
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
}

#[tokio::test]
async fn abandoned_call_is_recorded_as_such() {
    let records = AuditRecords::capture();
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let token = gateway.token("editor", FaceName::Mcp, &[Right::Talk]).await;
    let stream = ask(&token, "wait for me").open(gateway.address).await;
    wait_until("the model is asked", || fleet.model.request_count() > 0).await;
    drop(stream);
    wait_until("the end is recorded", || records.with_action("tool_call").len() == 2).await;
    let outcome = records.outcomes("tool_call").pop().unwrap();
    assert!(["abandoned", "cancelled, executed: unknown"].contains(&outcome.as_str()), "{outcome}");
}
