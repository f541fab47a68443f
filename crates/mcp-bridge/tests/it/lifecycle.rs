//! Servers come, change, go and come back.

use std::time::Duration;

use rockbot_contracts::mcp::{
    McpManageErrorCode, McpRegisterServerRequest, McpServerDetailsRequest,
};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, RegistrationPolicy};
use rockbot_testkit::fixture::{TEST_TIMEOUT, wait_until, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::json;

use crate::bed::{bridge, call, file, misbehaving, said};

#[tokio::test]
async fn only_what_differs_is_started_anew() {
    let servers = json!({"kept": misbehaving(), "changed": misbehaving(), "gone": misbehaving()});
    let bridge = bridge(servers).await;
    let pid = |server| said(&bridge, server, "pid", json!({}));
    let (kept, changed) = (pid("kept").await, pid("changed").await);
    let mut other = misbehaving();
    other["toolsDenied"] = json!(["echo"]);
    bridge
        .apply(file(&json!({"Kept": misbehaving(), "changed": other, "new": misbehaving()})))
        .await;
    bridge.wait_until_settled(Duration::from_secs(20)).await;
    // A name in other letters is another configuration of the same server.
    assert_ne!(pid("kept").await, kept);
    assert_ne!(pid("changed").await, changed);
    assert!(bridge.registry_name("changed", "echo").is_none(), "denied at list");
    assert!(call(&bridge, "changed", "echo", json!({})).await.is_err(), "and at call");
    let names: Vec<_> = bridge.servers().into_iter().map(|server| server.name).collect();
    assert_eq!(names, ["changed", "Kept", "new"]);
    let (kept, new) = (pid("kept").await, pid("new").await);
    bridge.apply(file(&json!({"Kept": misbehaving(), "new": misbehaving()}))).await;
    assert_eq!((pid("kept").await, pid("new").await), (kept, new));
    bridge.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_list_its_tools_is_not_ready_and_says_why() {
    let bridge = Bridge::new(BridgeOptions::default());
    let mut mute = misbehaving();
    mute["args"].as_array_mut().unwrap().push(json!("mute"));
    bridge.apply(file(&json!({"mute": mute}))).await;
    within_timeout("its failure", bridge.wait_until_settled(TEST_TIMEOUT * 2)).await;
    let status = bridge.servers().remove(0);
    let why = status.reason.unwrap_or_default();
    assert!(!status.ready && why.contains("listing its tools failed"), "{why}");
    bridge.stop().await;
}

#[tokio::test]
async fn what_has_settled_can_be_asked_about() {
    let servers: serde_json::Map<_, _> =
        (0..8).map(|number| (format!("odd{number}"), misbehaving())).collect();
    let bridge = Bridge::new(BridgeOptions::default());
    bridge.apply(file(&servers.into())).await;
    within_timeout("all of them", bridge.wait_until_settled(TEST_TIMEOUT * 2)).await;
    for server in bridge.servers() {
        let request = McpServerDetailsRequest { server_name: server.name, tool_name: None };
        assert!(!bridge.details(request).await.unwrap().tools.is_empty());
    }
    bridge.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_does_not_keep_the_others_and_appears_later() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("late");
    let bridge = Bridge::new(BridgeOptions::default());
    let late = json!({"command": program, "required": true});
    bridge.apply(file(&json!({"odd": misbehaving(), "late": late}))).await;
    bridge.wait_until_settled(Duration::from_secs(20)).await;
    assert_eq!(said(&bridge, "odd", "echo", json!({})).await, "{}");
    assert_eq!(bridge.missing_required(), ["late"]);
    let why = bridge.servers().remove(0).reason.unwrap();
    assert!(why.contains("cannot start its program"), "{why}");
    let script = misbehaving()["args"][0].as_str().unwrap().to_owned();
    std::fs::write(&program, format!("#!/bin/sh\nexec python3 {script}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    wait_until("the late server", || bridge.missing_required().is_empty()).await;
    assert_eq!(said(&bridge, "late", "echo", json!({})).await, "{}");
    bridge.stop().await;
}

#[tokio::test]
async fn a_swarm_of_changes_is_asked_about_once() {
    let bridge = bridge(json!({"odd": misbehaving()})).await;
    let mut index = bridge.index();
    for _ in 0..3 {
        said(&bridge, "odd", "storm", json!({})).await;
    }
    said(&bridge, "odd", "grow", json!({})).await;
    let grown = |index: &rockbot_tool_rpc::mcp::McpIndex| {
        index.get("odd").is_some_and(|odd| odd.tool_names.iter().any(|name| name == "grown0"))
    };
    let told = tokio::time::timeout(Duration::from_secs(10), index.wait_for(grown)).await.is_ok();
    assert!(told, "the index follows the server");
    assert_eq!(bridge.registry_name("odd", "grown0").as_deref(), Some("odd__grown0"));
    let listed: u32 = said(&bridge, "odd", "listed", json!({})).await.parse().unwrap();
    assert!((2..=4).contains(&listed), "300 changes, {listed} lists");
    bridge.stop().await;
}

#[tokio::test]
async fn a_program_sees_what_it_is_given_and_nothing_of_the_bridge() {
    let mut entry = misbehaving();
    entry["env"] = json!({"GIVEN": "yes"});
    let bridge = bridge(json!({"odd": entry})).await;
    let environment = said(&bridge, "odd", "env", json!({})).await;
    let environment: serde_json::Value = serde_json::from_str(&environment).unwrap();
    assert_eq!(environment["GIVEN"], "yes");
    assert!(environment.get("PATH").is_some());
    assert!(environment.get("CARGO_MANIFEST_DIR").is_none(), "of this test, and not its business");
    bridge.stop().await;
}

#[tokio::test]
async fn what_a_program_started_ends_with_it() {
    let bridge = bridge(json!({"odd": misbehaving()})).await;
    let child = said(&bridge, "odd", "child", json!({})).await;
    let alive = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(alive(&child));
    bridge.stop().await;
    wait_until("the grandchild to be gone", || !alive(&child)).await;
}

#[tokio::test]
async fn servers_are_added_at_run_time_only_where_that_is_allowed() {
    let request = |name: &str, command: &str| McpRegisterServerRequest {
        server_name: name.to_owned(),
        command: Some(command.to_owned()),
        arguments: vec![misbehaving()["args"][0].as_str().unwrap().to_owned()],
        url: None,
    };
    let closed = bridge(json!({"odd": misbehaving()})).await;
    let refused = closed.register(request("new", "python3")).await.unwrap_err();
    assert_eq!(refused.code, McpManageErrorCode::NotPermitted);
    closed.stop().await;

    let registration = RegistrationPolicy {
        allowed: true,
        commands: ["python3".to_owned(), "true".to_owned()].into(),
    };
    let open = Bridge::new(BridgeOptions { registration, ..BridgeOptions::default() });
    open.apply(file(&json!({"odd": misbehaving()}))).await;
    let code = |name: &'static str, command: &'static str| {
        let (open, request) = (open.clone(), request(name, command));
        async move { open.register(request).await.map(|_| ()).map_err(|error| error.code) }
    };
    assert_eq!(code("new", "bash").await, Err(McpManageErrorCode::NotPermitted));
    assert_eq!(code("ODD", "python3").await, Err(McpManageErrorCode::Conflict));
    assert_eq!(code("a\u{1b}b", "python3").await, Err(McpManageErrorCode::InvalidRequest));
    assert_eq!(code("dead", "true").await, Err(McpManageErrorCode::Unavailable));
    assert_eq!(code("new", "python3").await, Ok(()));
    assert_eq!(said(&open, "New", "echo", json!({})).await, "{}");
    // The file is about others.
    open.apply(file(&json!({"odd": misbehaving()}))).await;
    assert_eq!(said(&open, "new", "echo", json!({})).await, "{}");
    let refused = open.unregister("odd").await.unwrap_err();
    assert_eq!(refused.code, McpManageErrorCode::NotPermitted);
    open.unregister("NEW").await.unwrap();
    assert_eq!(open.unregister("new").await.unwrap_err().code, McpManageErrorCode::NotFound);
    assert!(open.index().borrow().get("new").is_none());
    open.stop().await;
}

#[tokio::test]
async fn a_server_is_shown_in_full() {
    let bridge = bridge(json!({"Odd": misbehaving()})).await;
    let request = |tool: Option<&str>| McpServerDetailsRequest {
        server_name: "odd".to_owned(),
        tool_name: tool.map(ToOwned::to_owned),
    };
    let details = bridge.details(request(None)).await.unwrap();
    assert_eq!(details.server.name, "Odd");
    assert_eq!(details.server.display_name, "misbehaving");
    assert_eq!(details.server.summary, "Does everything wrong.");
    assert_eq!(details.protocol_version.as_deref(), Some("2025-11-25"));
    assert_eq!(details.tools.len(), usize::try_from(details.server.tool_count).unwrap());
    let one = bridge.details(request(Some("echo"))).await.unwrap();
    assert_eq!(one.tools.len(), 1);
    assert_eq!(one.tools[0].model_name, "Odd__echo");
    let none = bridge.details(request(Some("nothing"))).await.unwrap_err();
    assert_eq!(none.code, McpManageErrorCode::NotFound);
    bridge.stop().await;
}
