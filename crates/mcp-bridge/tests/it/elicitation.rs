//! Requests of servers for input from the user of a call, in both protocol eras, in process and over the bus.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rockbot_contracts::{InputRequest, InputResponse, SessionId};
use rockbot_mcp_bridge::BridgeOptions;
use rockbot_testkit::fixture::within_timeout;
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{ToolContext, UserInput};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};

use crate::fixture::{GatewayFixture, context};

const ERAS: [&str; 2] = ["handshake", "stateless"];

fn servers() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/servers/asking.py");
    let server = |era: &str| json!({"command": "python3", "args": [script, era]});
    json!({"handshake": server("handshake"), "stateless": server("stateless")})
}

async fn fixture(declares_input: bool) -> GatewayFixture {
    let options = BridgeOptions { declares_input, ..BridgeOptions::default() };
    GatewayFixture::new(options, servers()).await
}

fn form() -> Value {
    json!({"mode": "form", "message": "Which\u{1b}[31m color?", "requestedSchema": {
        "type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green"]},
            "count": {"type": "integer", "minimum": 1}}}})
}

/// A user who responds with `response` and remembers what was shown.
struct User {
    response: InputResponse,
    shown: Mutex<Vec<InputRequest>>,
}

impl User {
    fn new(response: Value) -> Arc<Self> {
        let response = serde_json::from_value(response).unwrap();
        Arc::new(Self { response, shown: Mutex::default() })
    }
}

impl UserInput for User {
    fn ask(&self, request: InputRequest, _limit: Duration) -> BoxFuture<'_, InputResponse> {
        self.shown.lock().push(request);
        Box::pin(std::future::ready(self.response.clone()))
    }
}

/// A user who never responds, and says when they were asked and when the request was withdrawn.
#[derive(Default)]
struct SilentUser {
    asked: Notify,
    withdrawn: Arc<Notify>,
}

struct Withdrawal(Arc<Notify>);

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl UserInput for SilentUser {
    fn ask(&self, _request: InputRequest, _limit: Duration) -> BoxFuture<'_, InputResponse> {
        let withdrawal = Withdrawal(self.withdrawn.clone());
        self.asked.notify_one();
        Box::pin(async move {
            let _withdrawal = withdrawal;
            std::future::pending().await
        })
    }
}

fn with_user(user: Arc<dyn UserInput>) -> ToolContext {
    ToolContext { input: Some(user), ..context("ask") }
}

async fn ask(gateway: &dyn McpGateway, era: &str, request: Value, call: &ToolContext) -> Value {
    let result = gateway.call(era, "ask", request, call);
    let result = within_timeout("the result", result).await.unwrap();
    serde_json::from_str(&result.to_text()).unwrap()
}

#[tokio::test]
async fn form_reaches_the_user_and_the_response_the_server() {
    let fixture = fixture(true).await;
    for (label, gateway) in &fixture.gateways {
        for era in ERAS {
            let accepted = json!({"action": "accept", "content": {"color": "red", "count": 2}});
            let user = User::new(accepted.clone());
            let response = ask(gateway.as_ref(), era, form(), &with_user(user.clone())).await;
            assert_eq!(response, accepted, "{label}, {era}");
            let shown = json!(user.shown.lock().first().unwrap());
            assert_eq!(
                (&shown["server"], &shown["message"]),
                (&json!(era), &json!("Which color?"))
            );
            assert_eq!(
                shown["fields"][0],
                json!({"name": "color", "required": true, "type": "choice",
                    "options": [{"value": "red"}, {"value": "green"}]})
            );
            for action in ["decline", "cancel"] {
                let user = User::new(json!({"action": action}));
                let response = ask(gateway.as_ref(), era, form(), &with_user(user)).await;
                assert_eq!(response, json!({"action": action}), "{label}, {era}");
            }
        }
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn link_reaches_the_user_with_its_address() {
    let fixture = fixture(true).await;
    let link = json!({"mode": "url", "message": "Log in", "elicitationId": "1",
        "url": "https://auth.example.com/login"});
    for (label, gateway) in &fixture.gateways {
        for era in ERAS {
            let user = User::new(json!({"action": "accept"}));
            let response = ask(gateway.as_ref(), era, link.clone(), &with_user(user.clone())).await;
            assert_eq!(response, json!({"action": "accept"}), "{label}, {era}");
            let shown = json!(user.shown.lock().first().unwrap());
            assert_eq!(shown["url"], "https://auth.example.com/login", "{label}, {era}");
        }
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn without_a_user_input_is_declined_at_once() {
    let fixture = fixture(true).await;
    for (label, gateway) in &fixture.gateways {
        for era in ERAS {
            let response = ask(gateway.as_ref(), era, form(), &context("ask")).await;
            assert_eq!(response, json!({"action": "decline"}), "{label}, {era}");
        }
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn unsafe_requests_never_reach_the_user() {
    let fixture = fixture(true).await;
    let property = |name: &str, schema: Value| {
        json!({"mode": "form", "message": "m", "requestedSchema":
            {"type": "object", "properties": {name: schema}}})
    };
    let url = |url: &str| json!({"mode": "url", "message": "m", "elicitationId": "1", "url": url});
    let requests = [
        property("password", json!({"type": "string"})),
        property("x", json!({"type": "string", "title": "API key token"})),
        property("code", json!({"type": "string", "format": "password"})),
        property("Kennwort", json!({"type": "string", "writeOnly": true})),
        property("a\u{202e}b", json!({"type": "string"})),
        url("javascript:alert(1)"),
        url("https://good.example@evil.example/"),
    ];
    // Not in a form of the protocol.
    let unreadable = [
        property("nested", json!({"type": "object", "properties": {}})),
        property("list", json!({"type": "array", "items": {"type": "string"}})),
        property("either", json!({"type": ["string", "null"]})),
        property("nothing", Value::Null),
    ];
    for (label, gateway) in &fixture.gateways {
        for era in ERAS {
            for request in requests.iter().chain(&unreadable) {
                let user = User::new(json!({"action": "accept"}));
                let context = with_user(user.clone());
                let response = ask(gateway.as_ref(), era, request.clone(), &context).await;
                assert_eq!(response, json!({"action": "decline"}), "{label}, {era}: {request}");
                assert!(user.shown.lock().is_empty(), "{label}, {era}: {request}");
            }
        }
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn unreadable_request_is_declined_beside_a_readable_one() {
    let fixture = fixture(true).await;
    let nested = json!({"mode": "form", "message": "m", "requestedSchema": {"type": "object",
        "properties": {"x": {"type": "object", "properties": {}}}}});
    let mut request = form();
    request["also"] = nested;
    for (label, gateway) in &fixture.gateways {
        let accepted = json!({"action": "accept", "content": {"color": "red"}});
        let user = User::new(accepted.clone());
        let call = with_user(user.clone());
        let response = ask(gateway.as_ref(), "stateless", request.clone(), &call).await;
        assert_eq!(response, json!({"q": accepted, "also": {"action": "decline"}}), "{label}");
        assert_eq!(user.shown.lock().len(), 1, "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn state_without_requests_repeats_the_call() {
    let fixture = fixture(true).await;
    let results =
        [json!({"requestState": "s"}), json!({"requestState": "s", "inputRequests": null})];
    for (label, gateway) in &fixture.gateways {
        for result in &results {
            let user = User::new(json!({"action": "accept"}));
            let (request, call) = (json!({"result": result}), with_user(user.clone()));
            let response = ask(gateway.as_ref(), "stateless", request, &call).await;
            assert_eq!(response, json!({"requestState": "s"}), "{label}: {result}");
            assert!(user.shown.lock().is_empty(), "{label}: {result}");
        }
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn result_with_too_many_requests_fails_only_its_call() {
    let fixture = fixture(true).await;
    let requests: Map<String, Value> = (0..1000).map(|key| (key.to_string(), json!(1))).collect();
    let request = json!({"result": {"inputRequests": requests}});
    for (label, gateway) in &fixture.gateways {
        let accepted = json!({"action": "accept", "content": {"color": "red"}});
        let user = User::new(accepted.clone());
        let call = with_user(user.clone());
        let result = gateway.call("stateless", "ask", request.clone(), &call);
        let failure = within_timeout("the failure", result).await.unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("more than 64 requests for input"), "{label}: {text}");
        assert!(user.shown.lock().is_empty(), "{label}");
        let response = ask(gateway.as_ref(), "stateless", form(), &with_user(user)).await;
        assert_eq!(response, accepted, "{label}");
    }
    fixture.shut_down().await;
}

#[tokio::test]
async fn elicitation_is_declared_only_where_a_user_can_respond() {
    for declares_input in [true, false] {
        let fixture = fixture(declares_input).await;
        for (label, gateway) in &fixture.gateways {
            for era in ERAS {
                for has_user in [true, false] {
                    let user = User::new(json!({"action": "decline"}));
                    let call = if has_user { with_user(user) } else { context("declared") };
                    let result = gateway.call(era, "declared", json!({}), &call).await.unwrap();
                    let is_declared = if era == "handshake" { declares_input } else { has_user };
                    let expected = if is_declared { r#"["form", "url"]"# } else { "[]" };
                    assert_eq!(result.to_text(), expected, "{label}, {era}, user: {has_user}");
                }
            }
        }
        fixture.shut_down().await;
    }
}

#[tokio::test]
async fn request_is_not_shown_while_the_server_may_run_a_call_of_another_conversation() {
    let fixture = fixture(true).await;
    let (_, gateway) = &fixture.gateways[0];
    let other = context("wait");
    let (started, mut starts) = mpsc::channel(1);
    let waiting = {
        let (gateway, other) = (gateway.clone(), other.clone());
        tokio::spawn(async move {
            started.send(()).await.unwrap();
            gateway.call("handshake", "wait", json!({}), &other).await
        })
    };
    starts.recv().await.unwrap();
    // The runtime has one thread: the call is sent before this one.
    tokio::task::yield_now().await;
    let user = User::new(json!({"action": "accept", "content": {"color": "red"}}));
    let response = ask(gateway.as_ref(), "handshake", form(), &with_user(user.clone())).await;
    assert_eq!(response, json!({"action": "decline"}));
    assert!(user.shown.lock().is_empty());
    other.cancellation.cancel();
    waiting.await.unwrap().unwrap_err();
    let call = with_user(user.clone());
    let response = ask(gateway.as_ref(), "handshake", form(), &call).await;
    assert_eq!(response, json!({"action": "decline"}), "the server may go on with the other call");
    assert!(user.shown.lock().is_empty());
    let call = ToolContext { session_id: other.session_id, ..call };
    let response = ask(gateway.as_ref(), "handshake", form(), &call).await;
    assert_eq!(response["action"], "accept");
    fixture.shut_down().await;
}

#[tokio::test]
async fn request_is_withdrawn_when_its_call_ends() {
    let fixture = fixture(true).await;
    // Of one conversation: the server may go on with the calls before.
    let session = SessionId::generate();
    for (label, gateway) in &fixture.gateways {
        for era in ERAS {
            let user = Arc::new(SilentUser::default());
            let call = ToolContext { session_id: session.clone(), ..with_user(user.clone()) };
            let cancellation = call.cancellation.clone();
            let asking = {
                let gateway = gateway.clone();
                tokio::spawn(async move { gateway.call(era, "ask", form(), &call).await })
            };
            within_timeout("the request", user.asked.notified()).await;
            cancellation.cancel();
            asking.await.unwrap().unwrap_err();
            within_timeout(&format!("{label}, {era}"), user.withdrawn.notified()).await;
        }
    }
    fixture.shut_down().await;
}
