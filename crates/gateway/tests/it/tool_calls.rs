//! Calls of tools by hand.

use rockbot_gateway::{FaceName, NamePatterns, Right, Token};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, TestGateway},
    handler::Handler,
    http::{Request, Response},
};

const ON: &str = "call_tools = true";

/// A program that calls tools.
struct Program<'a> {
    gateway: &'a TestGateway,
    token: String,
}

impl<'a> Program<'a> {
    async fn new(gateway: &'a TestGateway, name: &str) -> Self {
        let token = gateway.token(name, FaceName::Console, &[Right::Call]).await;
        Self { gateway, token }
    }

    /// Returns one that may call this tool only.
    async fn limited(gateway: &'a TestGateway, tool: &str) -> Self {
        let change = |token: Token| Token {
            tools: NamePatterns::new(vec![tool.to_owned()]),
            rights: [Right::Call].into(),
            ..token
        };
        let token = gateway.token_with("limited", FaceName::Console, change).await;
        Self { gateway, token }
    }

    async fn send(&self, tool: &str, key: Option<&str>, body: &Value) -> Response {
        let request = Request::post(&format!("/api/v1/tools/{tool}/calls"), body);
        let request = request.token(&self.token);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        request.send(self.gateway.address).await
    }

    /// Returns the outcome of a call that was made.
    async fn call(&self, tool: &str, key: &str, body: &Value) -> Value {
        let response = self.send(tool, Some(key), body).await;
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    }

    async fn refused(&self, tool: &str, key: Option<&str>, body: &Value) -> (u16, String) {
        let response = self.send(tool, key, body).await;
        assert_eq!(response.json()["executed"], "no", "{}", response.body);
        (response.status, response.json()["code"].as_str().unwrap().to_owned())
    }
}

fn text(text: &str) -> Value {
    json!({"arguments": {"text": text}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_call_runs_once_over_two_gateways() {
    let fleet = Fleet::start().await;
    let handler = Handler::start(&fleet).await;
    let gateways = [fleet.gateway_with(ON).await, fleet.gateway_with(ON).await];
    let programs = [Program::new(&gateways[0], "a").await, Program::new(&gateways[1], "a").await];
    let confirmed = |text: &str| json!({"arguments": {"text": text}, "confirm": "write"});
    let body = confirmed("hello");
    let (first, second) = tokio::join!(
        programs[0].call("write", "the-same-key", &body),
        programs[0].call("write", "the-same-key", &body),
    );
    let third = programs[1].call("write", "the-same-key", &body).await;
    for outcome in [&first, &second, &third] {
        assert_eq!(outcome["content"], json!([{"kind": "text", "text": "hello in run 1"}]));
        assert_eq!((&outcome["outcome"], &outcome["executed"]), (&json!("ok"), &json!("yes")));
        assert_eq!(outcome["callId"], first["callId"]);
    }
    assert!(first["handler"].as_str().unwrap().starts_with("handler/"), "{first}");
    let other = programs[0].call("write", "the-same-key", &confirmed("other")).await;
    assert_eq!((&other["outcome"], &other["executed"]), (&json!("not_permitted"), &json!("no")));
    let stranger = Program::new(&gateways[0], "b").await;
    let own = stranger.call("write", "the-same-key", &body).await;
    assert_eq!(own["content"][0]["text"], "hello in run 2", "keys belong to their program");
    assert_eq!(handler.runs(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_outside_of_the_scope_is_refused() {
    let fleet = Fleet::start().await;
    let handler = Handler::start(&fleet).await;
    let off = fleet.gateway().await;
    let program = Program::new(&off, "program").await;
    let refused = program.refused("read", Some("some-key"), &text("a")).await;
    assert_eq!(refused, (403, "not_enabled".to_owned()));
    let on = fleet.gateway_with(ON).await;
    let limited = Program::limited(&on, "read").await;
    for tool in ["write", "absent"] {
        let confirmed = json!({"confirm": tool});
        let refused = limited.refused(tool, Some("some-key"), &confirmed).await;
        assert_eq!(refused, (404, "not_found".to_owned()), "{tool}");
    }
    assert_eq!(handler.runs(), 0);
    assert_eq!(limited.call("read", "some-key", &text("a")).await["executed"], "yes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destructive_call_needs_a_confirmation_of_the_shown_tool() {
    let fleet = Fleet::start().await;
    let handler = Handler::start(&fleet).await;
    let gateway = fleet.gateway_with(ON).await;
    let program = Program::new(&gateway, "program").await;
    for (body, status, code) in [
        (text("a"), 400, "unconfirmed"),
        (json!({"confirm": "read"}), 400, "unconfirmed"),
        (json!({"confirm": "write", "fingerprint": "0"}), 409, "changed"),
        (json!({"confirm": "write", "timeoutMs": 0}), 400, "invalid_request"),
        (json!({"confirm": "write", "timeoutMs": 600_001}), 400, "invalid_request"),
        (json!({"arguments": 1}), 400, "invalid_request"),
        (json!({"unknown": 1}), 400, "invalid_request"),
    ] {
        let refused = program.refused("write", Some("some-key"), &body).await;
        assert_eq!(refused, (status, code.to_owned()), "{body}");
    }
    let confirmed = json!({"arguments": {"text": "a"}, "confirm": "write"});
    for key in [None, Some("short"), Some("with a space")] {
        let refused = program.refused("write", key, &confirmed).await;
        assert_eq!(refused, (400, "missing_key".to_owned()), "{key:?}");
    }
    assert_eq!(handler.runs(), 0);
    assert_eq!(program.call("write", "some-key", &confirmed).await["executed"], "yes");
    assert_eq!(handler.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_says_whether_the_tool_ran() {
    let fleet = Fleet::start().await;
    let _handler = Handler::start(&fleet).await;
    let gateway = fleet.gateway_with(ON).await;
    let program = Program::new(&gateway, "program").await;
    for (tool, body, outcome, executed) in [
        ("fail", text("a"), "tool_error", "yes"),
        ("read", json!({"arguments": {"text": 1}}), "invalid_arguments", "no"),
        ("hang", json!({"timeoutMs": 200}), "timeout", "yes"),
    ] {
        let called = program.call(tool, &format!("key-of-{tool}"), &body).await;
        assert_eq!((&called["outcome"], &called["executed"]), (&json!(outcome), &json!(executed)));
        assert_eq!(called["message"].is_string(), tool != "fail", "{called}");
    }
}
