//! OpenAPI documents as servers of bridges on a real broker.

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
    site::{Reply, Site},
};

/// The token of the API.
const TOKEN: &str = "token-of-the-orders-api-0123";
/// Settings of a bridge for APIs on this machine.
const SETTINGS: [(&str, &str); 3] = [
    ("ROCKBOT_MCP__ALLOW_PLAIN_HTTP", "true"),
    ("ROCKBOT_MCP__ALLOW_PRIVATE", r#"["127.0.0.1"]"#),
    ("ORDERS_TOKEN", TOKEN),
];

/// Script of a model that calls an operation through `mcp_invoke_tool`.
const CALLS_AN_OPERATION: &str = r#"
[[turn]]
[[turn.call]]
name = "mcp_invoke_tool"
arguments = { server_name = "orders", tool_name = "getOrder", arguments = { id = "a/7" } }
[[turn]]
text = "{{result.mcp_invoke_tool}}"
"#;

fn document(server: &str) -> Value {
    let id = json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}});
    let item = json!({"type": "object", "properties": {"item": {"type": "string"}}});
    let content = json!({"application/json": {"schema": item}});
    json!({
        "openapi": "3.1.0", "info": {"title": "Orders", "version": "1"},
        "servers": [{"url": server}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}],
        "paths": {
            "/orders/{id}": {"get": {"operationId": "getOrder", "parameters": [id]}},
            "/orders": {"post": {"operationId": "createOrder",
                "requestBody": {"required": true, "content": content}}},
        },
    })
}

/// Starts a bridge with an API whose document is a file.
async fn bridge(fleet: &Fleet, document: &Value, origins: &[&str]) -> Running {
    fleet.write("orders.json", &document.to_string());
    let server = json!({"openapi": fleet.path("orders.json"), "credentialOrigins": origins,
        "auth": {"key": {"token": "${ORDERS_TOKEN}"}}});
    fleet.bridge_with("bridge-1", &json!({"orders": server}), &SETTINGS).await
}

#[tokio::test]
async fn operations_are_called_by_commands_and_models() {
    let order = Reply::json(&json!({"id": "a/7", "seen": TOKEN}));
    let site = Site::start([
        ("/v1/orders/a%2F7", vec![order]),
        ("/v1/orders", vec![Reply::json(&json!({"id": "8"})), Reply::Send(Vec::new())]),
    ])
    .await;
    let fleet = Fleet::new();
    let server = site.url("/v1");
    let _bridge = bridge(&fleet, &document(&server), &[&site.url("")]).await;

    let called = fleet.run(&["--json", "mcp", "call", "orders", "getOrder", r#"{"id": "a/7"}"#]);
    let called = called.await;
    called.assert_code(0);
    assert_eq!(called.json()["content"], r#"{"id":"a/7","seen":"[secret]"}"#);
    let sent = site.requests("/v1/orders/a%2F7");
    assert_eq!(sent[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));

    // The second order gets no response.
    let create = ["--json", "mcp", "call", "orders", "createOrder", r#"{"body": {"item": "tea"}}"#];
    fleet.run(&create).await.assert_code(0);
    let unknown = fleet.run(&create).await.json();
    assert_eq!(
        (&unknown["code"], &unknown["executed"]),
        (&json!("outcome_unknown"), &json!("unknown"))
    );
    assert_eq!(site.requests("/v1/orders").len(), 2, "an order was sent again");

    let script = fleet.write("script.toml", CALLS_AN_OPERATION);
    let mut agent = fleet.program("rockbot-agent");
    agent.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    let chat = fleet.run(&["chat", "Where is my order?"]).await;
    chat.assert_code(0);
    let expected = ["← mcp_invoke_tool ran on mcp-bridge/bridge-1", r#""seen":"[secret]""#];
    assert_contains(&chat.stdout, &expected);
}

#[tokio::test]
async fn document_that_names_other_recipients_offers_nothing() {
    let site = Site::start([("/orders", vec![Reply::json(&json!({}))])]).await;
    let fleet = Fleet::new();
    let _bridge = bridge(&fleet, &document(&site.url("")), &["https://api.example.com"]).await;
    let call = ["--json", "mcp", "call", "orders", "createOrder", r#"{"body": {}}"#];
    let refused = fleet.run(&call).await;
    assert_eq!(refused.json()["executed"], "no", "{}", refused.stdout);
    let mut check = fleet.program("rockbot");
    check.args(["mcp", "check", "bridge-1.json"]).envs(SETTINGS);
    let checked = Running::start(check).wait().await;
    checked.assert_code(1);
    assert_contains(&checked.stdout, &["credentialOrigins", &site.url("")]);
    assert!(site.requests("/orders").is_empty(), "the API got a request");
}
