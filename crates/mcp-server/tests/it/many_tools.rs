//! Fleets with more tools than a client is shown.

use rmcp::{ClientLifecycleMode, ServiceError};
use rockbot_mcp_server::{McpClient, McpServerSection};
use serde_json::{Value, json};

use crate::{
    fixture::{Handler, client, error, filter, request, text},
    servers::Servers,
};

fn section(max_listed_tools: usize) -> McpServerSection {
    McpServerSection { max_listed_tools, ..McpServerSection::default() }
}

#[tokio::test]
async fn tools_of_servers_are_found_by_search() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    servers.add("tracker", 100);
    let fleet = handler.fleet_with(section(20), Some(servers.gateway())).await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let names = session.tool_names().await;
    assert!(names.contains(&"rockbot_find_tools".to_owned()), "{names:?}");
    assert!(names.contains(&"echo".to_owned()) && names.len() < 20, "{names:?}");

    let found = session.call("rockbot_find_tools", json!({"query": "issue 42"})).await;
    let found: Value = serde_json::from_str(text(&found)).unwrap();
    let best = &found["tools"][0];
    assert_eq!(best["name"], "tracker__issue_42", "{found}");
    assert_eq!(best["arguments"]["type"], "object");
    let invoke = json!({"tool_name": "tracker__issue_42", "arguments": {"text": "x"}});
    let called = session.call("rockbot_invoke_tool", invoke).await;
    assert_eq!(text(&called), "tracker issue_42 {\"text\":\"x\"}");
    assert_eq!(called.structured_content, Some(json!({"server": "tracker"})));
    // A tool that is not listed has its own name as well.
    let called = session.call("tracker__issue_7", json!({})).await;
    assert_eq!(text(&called), "tracker issue_7 {}");

    let nothing = session.call("rockbot_find_tools", json!({"query": "zebra"})).await;
    assert!(text(&nothing).starts_with("No tool matches"));
    let invalid = session.call("rockbot_find_tools", json!({})).await;
    assert_eq!(error(&invalid, "executed"), "no");
    let invalid = session.call("rockbot_invoke_tool", json!({"tool_name": 1})).await;
    assert_eq!(error(&invalid, "code"), "invalid_arguments");
}

#[tokio::test]
async fn all_tools_are_listed_in_pages_when_they_fit() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    servers.add("tracker", 600);
    let fleet = handler.fleet_with(section(1000), Some(servers.gateway())).await;
    let session = fleet.connect(client("desktop"), ClientLifecycleMode::Initialize).await;
    let first = session.peer().list_tools(None).await.unwrap();
    assert_eq!(first.tools.len(), 250);
    let names = session.tool_names().await;
    assert_eq!(names.iter().filter(|name| name.starts_with("tracker__")).count(), 600);
    assert!(!names.contains(&"rockbot_find_tools".to_owned()));
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(names, sorted);
}

#[tokio::test]
async fn search_finds_permitted_tools_only() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    servers.add("tracker", 100);
    let fleet = handler.fleet_with(section(4), Some(servers.gateway())).await;
    let limited = McpClient::new("limited", filter(&["tracker__issue_42", "echo"])).unwrap();
    let session = fleet.connect(limited, ClientLifecycleMode::Initialize).await;
    assert_eq!(session.tool_names().await, ["rockbot_find_tools", "rockbot_invoke_tool"]);
    let found = session.call("rockbot_find_tools", json!({"query": "issue_42 echo"})).await;
    let found = text(&found);
    assert!(!found.contains("\"tracker__issue_42\"") && !found.contains("\"echo\""), "{found}");
    for name in ["tracker__issue_42", "rockbot_find_tools", "rockbot_invoke_tool"] {
        let call = request("rockbot_invoke_tool", json!({"tool_name": name}));
        let refused = session.peer().call_tool(call).await;
        assert!(matches!(refused, Err(ServiceError::McpError(_))), "{refused:?}");
    }
}
