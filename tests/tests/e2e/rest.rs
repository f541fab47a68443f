//! REST tools of handler processes: handlers killed during a request, and changes of the file.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Requester, Subscription};
use rockbot_contracts::{
    AgentName, InstanceId, QueueSpec, ToolCatalog,
    json::Limits,
    topology::{ReplyAddress, tool_catalog_announce},
};
use rockbot_testkit::fixture::{next_delivery, within_timeout};
use rockbot_tool_rpc::CatalogDirectory;
use rockbot_tools::ToolRegistry;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    fleet::{Fleet, assert_contains},
    process::{Exit, Running},
    site::{Reply, Site},
};

/// Starts a handler of the pool `api`, which offers the REST tools of a file.
pub(crate) async fn rest_handler(fleet: &Fleet, instance: &str, file: &str) -> Running {
    rest_handler_with(fleet, instance, file, &[]).await
}

async fn rest_handler_with(
    fleet: &Fleet,
    instance: &str,
    file: &str,
    extra: &[(&str, &str)],
) -> Running {
    let file = fleet.path(file).display().to_string();
    let settings = [
        ("ROCKBOT_HANDLER__POOL", "api"),
        ("ROCKBOT_HANDLER__FAMILIES", r#"["rest"]"#),
        ("ROCKBOT_REST__CONFIG", &file),
        ("ROCKBOT_REST__ALLOW_PLAIN_HTTP", "true"),
        ("ROCKBOT_REST__ALLOW_PRIVATE", r#"["127.0.0.1"]"#),
    ];
    fleet.handler_with(instance, &[&settings[..], extra].concat()).await
}

/// Writes a file of REST tools.
pub(crate) fn write_tools(fleet: &Fleet, file: &str, tools: &Value) {
    fleet.write(file, &json!({"restTools": tools}).to_string());
}

/// Returns a tool that reads a URL.
pub(crate) fn get(url: &str) -> Value {
    json!({"description": "Reads.", "url": url})
}

/// Calls `create_order`, and kills its handler when the request has arrived. A second handler is ready
/// then.
async fn killed_during_request(site: &Site, extra: &Value) -> Exit {
    let mut tool = json!({"description": "Creates an order.", "method": "POST",
        "url": site.url("/orders"), "body": {"item": "tea"}});
    let members = extra.as_object().expect("an object").clone();
    tool.as_object_mut().expect("an object").extend(members);
    let fleet = Fleet::new();
    write_tools(&fleet, "rest.json", &json!({"create_order": tool}));
    let first = rest_handler(&fleet, "api-1", "rest.json").await;
    let call = fleet.start(&["--json", "tools", "call", "create_order"]);
    site.wait_for_request("/orders").await;
    let _second = rest_handler(&fleet, "api-2", "rest.json").await;
    first.send(Signal::KILL);
    first.wait().await;
    call.wait().await
}

#[tokio::test]
async fn post_of_killed_handler_is_outcome_unknown() {
    let site = Site::start([("/orders", vec![Reply::Hang, Reply::json(&json!({"id": 2}))])]).await;
    let called = killed_during_request(&site, &json!({})).await;
    called.assert_code(1);
    let result = called.json();
    assert_eq!(
        (&result["code"], &result["executed"], &result["isRetryable"]),
        (&json!("outcome_unknown"), &json!("unknown"), &json!(false))
    );
    assert_eq!(site.requests("/orders").len(), 1, "the request was sent again");
}

#[tokio::test]
async fn idempotent_post_of_killed_handler_keeps_its_key() {
    let site = Site::start([("/orders", vec![Reply::Hang, Reply::json(&json!({"id": 7}))])]).await;
    let extra = json!({"idempotencyKey": "Idempotency-Key", "idempotent": true});
    let called = killed_during_request(&site, &extra).await;
    called.assert_code(0);
    let result = called.json();
    assert_eq!(
        (&result["content"], &result["ranOn"]),
        (&json!(r#"{"id":7}"#), &json!("tool-handler/api-2"))
    );
    let requests = site.requests("/orders");
    let keys: Vec<_> = requests.iter().map(|request| request.header("idempotency-key")).collect();
    assert!(matches!(keys[..], [Some(first), Some(second)] if first == second), "{keys:?}");
}

/// The start of every secret in the file of a handler.
const SECRET: &str = "hunter2";

#[tokio::test]
async fn announcements_and_log_of_a_handler_have_no_secret() {
    let site = Site::start([("/orders", vec![Reply::json(&json!({"seen": "hunter2-variable"}))])]);
    let site = site.await;
    let fleet = Fleet::new();
    let bus = fleet.bus(|_| {}).await;
    let queue = QueueSpec::exclusive(&tool_catalog_announce(), &InstanceId::generate());
    let consuming = bus.consume(Subscription::on_receipt(queue, 64));
    let mut announcements = within_timeout("subscribe", consuming).await.expect("subscribed");
    let document = json!({"openapi": "3.1.0", "servers": [{"url": site.url("")}], "paths": {
        "/orders": {"get": {"operationId": "listOrders", "security": [{"key": []}]}}},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}});
    fleet.write("api.json", &document.to_string());
    let order = json!({"description": "Creates.", "method": "POST", "url": site.url("/orders"),
        "query": {"key": "${API_SECRET}"}, "headers": {"X-Api-Key": "hunter2-literal"},
        "body": {"token": "hunter2-literal", "k": "${API_SECRET}"}});
    let api = json!({"spec": "api.json", "credentialOrigins": [site.url("")],
        "auth": {"key": {"token": "${API_SECRET}"}}});
    let file = json!({"restTools": {"create_order": order}, "openApi": {"api": api}});
    fleet.write("rest.json", &file.to_string());
    let secret = ("API_SECRET", "hunter2-variable");
    let handler = rest_handler_with(&fleet, "api-1", "rest.json", &[secret]).await;
    let names = loop {
        let delivery = next_delivery(&mut announcements).await;
        let body = String::from_utf8_lossy(&delivery.envelope().body).into_owned();
        assert!(!body.contains(SECRET), "the catalog has a secret: {body}");
        let catalog: ToolCatalog =
            delivery.envelope().decode(Limits::default()).expect("a catalog");
        let names: Vec<_> = catalog.tools.into_iter().map(|tool| tool.name).collect();
        if !names.is_empty() {
            break names;
        }
    };
    for expected in ["create_order", "rest__listOrders"] {
        assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
    }
    let called = fleet.run(&["--json", "tools", "call", "create_order"]).await;
    called.assert_code(0);
    assert_eq!(called.json()["content"], r#"{"seen":"[secret]"}"#);
    assert!(site.requests("/orders")[0].header("x-api-key") == Some("hunter2-literal"));
    handler.send(Signal::TERM);
    let exit = handler.wait().await;
    exit.assert_code(0);
    assert!(!exit.stderr.contains(SECRET) && !exit.stdout.contains(SECRET), "{exit:?}");
}

/// A model that calls one tool before the change of the file, and the other after it.
const CALLS_BOTH: &str = r#"
[[turn]]
when = "before"
[[turn.call]]
name = "old_status"
[[turn]]
text = "{{result.old_status}}"

[[turn]]
when = "after"
[[turn.call]]
name = "new_status"
[[turn.call]]
name = "kept_status"
[[turn]]
text = "{{result.new_status}} {{result.kept_status}}"
"#;

/// Time limit for a change of a file to reach the list of tools of an agent. It takes about a second.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for the change of a list of tools, as an agent has it, until it meets a condition.
async fn wait_for_change(registry: &ToolRegistry, condition: impl Fn(&ToolRegistry) -> bool) {
    let mut changes = registry.subscribe();
    let changed = async {
        while !condition(registry) {
            changes.changed().await.expect("the registry exists");
        }
    };
    timeout(CHANGE_TIMEOUT, changed).await.expect("the list of tools follows the file");
}

#[tokio::test]
async fn file_change_reaches_agents_and_command() {
    let site = Site::start([
        ("/old", vec![Reply::json(&json!({"from": "old"}))]),
        ("/new", vec![Reply::json(&json!({"from": "new"}))]),
        ("/kept", vec![Reply::json(&json!({"from": "kept"}))]),
    ])
    .await;
    let (old, new) = (get(&site.url("/old")), get(&site.url("/new")));
    let kept = get(&site.url("/kept"));
    let fleet = Fleet::new();
    write_tools(&fleet, "rest.json", &json!({"old_status": old, "kept_status": kept}));
    let _handler = rest_handler(&fleet, "api-1", "rest.json").await;
    let script = fleet.write("script.toml", CALLS_BOTH);
    let mut agent = fleet.program("rockbot-agent");
    agent.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    agent.expect_log("handler announced its tools").await;
    let address =
        ReplyAddress::new(AgentName::new("watcher").expect("a name"), InstanceId::generate());
    let requester = Arc::new(Requester::new(fleet.bus(|_| {}).await, address));
    let registry = Arc::new(ToolRegistry::new());
    let _directory = CatalogDirectory::start(requester, registry.clone()).await.expect("started");
    wait_for_change(&registry, |registry| registry.get("old_status").is_some()).await;
    let before = fleet.run(&["chat", "before"]).await;
    before.assert_code(0);
    assert_contains(&before.stdout, &[r#"{"from":"old"}"#]);

    let written = Instant::now();
    write_tools(&fleet, "rest.json", &json!({"new_status": new, "kept_status": kept}));
    wait_for_change(&registry, |registry| {
        registry.get("new_status").is_some() && registry.get("old_status").is_none()
    })
    .await;
    println!("the list of tools followed the file after {:?}", written.elapsed());
    assert!(registry.get("kept_status").is_some());
    let listed = fleet.run(&["--json", "tools", "list"]).await;
    listed.assert_code(0);
    let listed = listed.json();
    let names: Vec<_> =
        listed.as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
    assert!(
        names.contains(&&json!("new_status")) && !names.contains(&&json!("old_status")),
        "{names:?}"
    );
    // The agent gets the same announcement, at its own time.
    let mut after = fleet.run(&["chat", "after"]).await;
    for _ in 0..100 {
        if !after.stdout.contains("tool not found") {
            break;
        }
        after = fleet.run(&["chat", "after"]).await;
    }
    after.assert_code(0);
    assert_contains(&after.stdout, &[r#"{"from":"new"}"#, r#"{"from":"kept"}"#]);
}
