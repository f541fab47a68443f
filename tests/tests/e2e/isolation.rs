//! Isolation of tools in a handler process: tools that hang, and others.

use std::time::Duration;

use rockbot_contracts::{HandlerPool, PoolName, ToolErrorCode};
use rockbot_testkit::fixture::wait_until;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::{
    caller::Caller,
    fleet::Fleet,
    rest::{get, write_tools},
    site::{Reply, Site},
};

/// Calls that run at once.
const CONCURRENCY: usize = 32;
/// Tools that hang when they are called.
const HANGING: usize = 20;
/// Calls of each tool that hangs: more than the handler runs and keeps waiting.
const CALLS: usize = 60;

/// Starts a handler with tools that hang, `status`, which does not, and further settings.
async fn handler(fleet: &Fleet, site: &Site, settings: &[(&str, &str)]) -> crate::process::Running {
    let mut tools = Map::new();
    for number in 0..HANGING {
        let mut tool = get(&site.url("/hang"));
        tool["timeoutMs"] = json!(300_000);
        tools.insert(format!("hang{number}"), tool);
    }
    tools.insert("status".to_owned(), get(&site.url("/status")));
    write_tools(fleet, "rest.json", &Value::Object(tools));
    let (file, concurrency) = (fleet.path("rest.json"), CONCURRENCY.to_string());
    let file = file.display().to_string();
    let mut all = vec![
        ("ROCKBOT_HANDLER__POOL", "api"),
        ("ROCKBOT_HANDLER__FAMILIES", r#"["rest"]"#),
        ("ROCKBOT_HANDLER__CONCURRENCY", &concurrency),
        ("ROCKBOT_HANDLER__BACKLOG", "64"),
        // Without tool_output, which would be one more tool.
        ("ROCKBOT_OUTPUTS__ENABLED", "false"),
        ("ROCKBOT_REST__CONFIG", &file),
        ("ROCKBOT_REST__ALLOW_PLAIN_HTTP", "true"),
        ("ROCKBOT_REST__ALLOW_PRIVATE", r#"["127.0.0.1"]"#),
    ];
    all.extend(settings);
    fleet.handler_with("api-1", &all).await
}

/// Returns a caller of the tools. Each has its own limit of calls in flight.
async fn caller(fleet: &Fleet, name: &str, timeout: Duration) -> Caller {
    let pool = HandlerPool::Named(PoolName::new("api").expect("a name"));
    let names = std::array::from_fn::<_, { HANGING + 1 }, _>(|number| match number {
        HANGING => "status".to_owned(),
        number => format!("hang{number}"),
    });
    let tools = names.each_ref().map(|name| (name.as_str(), pool.invoke_key()));
    Caller::with_tools(name, fleet.bus(|_| {}).await, timeout, tools)
}

/// Calls `hung` tools until the handler runs no more of their calls, and then another tool.
async fn check(hung: usize) {
    let site = Site::start([
        ("/hang", vec![Reply::Hang]),
        ("/status", vec![Reply::json(&json!({"state": "fine"}))]),
    ])
    .await;
    let fleet = Fleet::new();
    let _handler = handler(&fleet, &site, &[]).await;
    let hanging = caller(&fleet, "hanging", Duration::from_secs(300)).await;
    let mut calls = JoinSet::new();
    for number in 0..hung {
        for _ in 0..CALLS {
            let caller = hanging.clone();
            calls.spawn(async move { caller.call(&format!("hang{number}"), json!({})).await });
        }
    }
    // One call of each of the 21 tools is reserved; the 11 others are common.
    let running = hung + CONCURRENCY - (HANGING + 1);
    wait_until("the hung calls", || site.requests("/hang").len() >= running).await;
    let other = caller(&fleet, "other", Duration::from_secs(60)).await;
    for _ in 0..10 {
        let status = other.call("status", json!({})).await.expect("a result");
        assert!(status.to_text().contains("fine"), "{}", status.to_text());
    }
    assert_eq!(site.requests("/hang").len(), running, "hung tools took reserved permits");
    // Calls are rejected for the number of waiting ones, and do not run.
    while let Some(ended) = calls.try_join_next() {
        let failure = ended.expect("no panic").expect_err("the site hangs");
        assert_eq!(failure.code(), ToolErrorCode::Overloaded);
    }
    calls.abort_all();
}

#[tokio::test]
async fn two_hung_tools_leave_calls_for_others() {
    check(2).await;
}

#[tokio::test]
async fn five_hung_tools_leave_calls_for_others() {
    check(5).await;
}

#[tokio::test]
async fn twenty_hung_tools_leave_calls_for_others() {
    check(20).await;
}

#[tokio::test]
async fn weight_reserves_more_calls_for_a_tool() {
    let site = Site::start([("/hang", vec![Reply::Hang]), ("/status", vec![Reply::Hang])]).await;
    let fleet = Fleet::new();
    let settings = [
        ("ROCKBOT_HANDLER__CONCURRENCY", "64"),
        ("ROCKBOT_HANDLER__BACKLOG", "256"),
        ("ROCKBOT_HANDLER__TOOLS__STATUS__WEIGHT", "20"),
    ];
    let _handler = handler(&fleet, &site, &settings).await;
    let hanging = caller(&fleet, "hanging", Duration::from_secs(300)).await;
    let mut calls = JoinSet::new();
    for number in 0..HANGING {
        for _ in 0..4 {
            let caller = hanging.clone();
            calls.spawn(async move { caller.call(&format!("hang{number}"), json!({})).await });
        }
    }
    // Of 64 calls, 32 are common and 32 reserved: one for each of the 21 tools, and the rest by weight, half
    // of it for `status`.
    let (hung, reserved) = (32 + HANGING, 6);
    wait_until("the hung calls", || site.requests("/hang").len() >= hung).await;
    let other = caller(&fleet, "other", Duration::from_secs(300)).await;
    let mut others = JoinSet::new();
    for _ in 0..reserved {
        let caller = other.clone();
        others.spawn(async move { caller.call("status", json!({})).await });
    }
    wait_until("the calls of status", || site.requests("/status").len() == reserved).await;
    assert_eq!(site.requests("/hang").len(), hung, "hung tools took reserved permits");
    calls.abort_all();
    others.abort_all();
}

#[tokio::test]
async fn waiting_calls_of_a_queue_leave_calls_for_others() {
    let site = Site::start([
        ("/hang", vec![Reply::Hang]),
        ("/status", vec![Reply::json(&json!({"state": "fine"}))]),
    ])
    .await;
    let fleet = Fleet::new();
    let settings = [
        ("ROCKBOT_HANDLER__QUEUES__SLOW__TOOLS", r#"["hang0", "hang1", "hang2"]"#),
        ("ROCKBOT_HANDLER__QUEUES__SLOW__CONCURRENCY", "1"),
    ];
    let _handler = handler(&fleet, &site, &settings).await;
    let hanging = caller(&fleet, "hanging", Duration::from_secs(300)).await;
    let mut calls = JoinSet::new();
    for number in (0..3).flat_map(|number| [number; CONCURRENCY]) {
        let caller = hanging.clone();
        calls.spawn(async move { caller.call(&format!("hang{number}"), json!({})).await });
    }
    site.wait_for_request("/hang").await;
    let other = caller(&fleet, "other", Duration::from_secs(60)).await;
    for _ in 0..CONCURRENCY {
        let status = other.call("status", json!({})).await.expect("a result");
        assert!(status.to_text().contains("fine"), "{}", status.to_text());
    }
    assert_eq!(site.requests("/hang").len(), 1, "the tools share one call");
    calls.abort_all();
}

#[tokio::test]
async fn tool_timeout_of_handler_ends_calls_of_all_tools() {
    let site = Site::start([("/hang", vec![Reply::Hang]), ("/status", vec![Reply::Hang])]).await;
    let fleet = Fleet::new();
    let settings = [("ROCKBOT_HANDLER__TOOL_TIMEOUT", "500ms")];
    let _handler = handler(&fleet, &site, &settings).await;
    let caller = caller(&fleet, "caller", Duration::from_secs(300)).await;
    for tool in ["hang0", "status"] {
        let failure = caller.call(tool, json!({})).await.expect_err("the site hangs");
        assert_eq!(failure.code(), ToolErrorCode::Timeout, "{failure}");
    }
}

#[tokio::test]
async fn unknown_queue_fails_the_start() {
    let fleet = Fleet::new();
    let tools = json!({"status": {"description": "Reads.", "url": "https://example.com/",
        "queue": "slow"}});
    write_tools(&fleet, "rest.json", &tools);
    let start = async |queue: &str| {
        let mut command = fleet.program("rockbot-tool-handler");
        command
            .arg("--check-config")
            .env("ROCKBOT_FILES__ROOT", fleet.path(""))
            .env("ROCKBOT_HANDLER__FAMILIES", r#"["rest"]"#)
            .env("ROCKBOT_REST__CONFIG", fleet.path("rest.json"))
            .env(format!("ROCKBOT_HANDLER__QUEUES__{queue}__CONCURRENCY"), "2");
        crate::process::Running::start(command).wait().await
    };
    let refused = start("other").await;
    refused.assert_code(64);
    assert!(refused.stderr.contains(r#"queue "slow" is unknown"#), "{}", refused.stderr);
    start("slow").await.assert_code(0);
}
