//! Addition, change, restart and removal of servers.

use std::time::Duration;

use rockbot_contracts::mcp::{
    McpManageErrorCode, McpRegisterServerRequest, McpServerDetailsRequest,
};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, RegistrationPolicy, ServersFile};
use rockbot_testkit::fixture::{TEST_TIMEOUT, wait_until, within_timeout};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::ToolFailure;
use serde_json::json;

use crate::fixture::{bridge, call, call_text, misbehaving_server, servers_file};

#[tokio::test]
async fn only_changed_servers_are_restarted() {
    let server = misbehaving_server();
    let bridge = bridge(json!({"kept": server, "changed": server, "removed": server})).await;
    let pid = |server| call_text(&bridge, server, "pid", json!({}));
    let (kept, changed) = (pid("kept").await, pid("changed").await);
    let mut different = server.clone();
    different["toolsDenied"] = json!(["echo"]);
    let changes = json!({"Kept": server, "changed": different, "new": server});
    bridge.apply(servers_file(&changes)).await;
    bridge.wait_until_settled(Duration::from_secs(20)).await;
    // A name in different case is a changed configuration of the same server.
    assert_ne!(pid("kept").await, kept);
    assert_ne!(pid("changed").await, changed);
    assert!(bridge.registry_name("changed", "echo").is_none(), "denied tools are not listed");
    assert!(
        call(&bridge, "changed", "echo", json!({})).await.is_err(),
        "denied tools cannot be called"
    );
    let names: Vec<_> = bridge.servers().into_iter().map(|server| server.name).collect();
    assert_eq!(names, ["changed", "Kept", "new"]);
    let (kept, new) = (pid("kept").await, pid("new").await);
    bridge.apply(servers_file(&json!({"Kept": server, "new": server}))).await;
    assert_eq!((pid("kept").await, pid("new").await), (kept, new));
    bridge.stop().await;
}

#[tokio::test]
async fn settings_of_calls_apply_without_a_restart() {
    let mut server = misbehaving_server();
    server["queue"] = json!("few");
    let file = |timeout: &str, running: u32| {
        let text = json!({
            "mcpServers": {"one": server},
            "queues": {"few": {"concurrency": running}},
            "toolTimeout": timeout,
            "traceMCP": running > 1,
        });
        ServersFile::parse(text.to_string().as_bytes(), |_| None).unwrap()
    };
    let bridge = Bridge::new(BridgeOptions::default());
    bridge.apply(file("1m", 1)).await;
    bridge.wait_until_settled(TEST_TIMEOUT).await;
    let before = call_text(&bridge, "one", "pid", json!({})).await;
    bridge.apply(file("100ms", 2)).await;
    let error = call(&bridge, "one", "slow", json!({})).await.unwrap_err();
    assert!(matches!(error, ToolFailure::TimedOut { .. }), "{error}");
    bridge.apply(file("1m", 1)).await;
    assert_eq!(call_text(&bridge, "one", "pid", json!({})).await, before);
    bridge.stop().await;
}

#[tokio::test]
async fn server_without_tool_list_is_not_ready() {
    let bridge = Bridge::new(BridgeOptions::default());
    let mut mute = misbehaving_server();
    mute["args"].as_array_mut().unwrap().push(json!("mute"));
    bridge.apply(servers_file(&json!({"mute": mute}))).await;
    within_timeout("the failed connection", bridge.wait_until_settled(TEST_TIMEOUT * 2)).await;
    let status = bridge.servers().remove(0);
    let reason = status.reason.unwrap_or_default();
    assert!(!status.ready && reason.contains("listing its tools failed"), "{reason}");
    bridge.stop().await;
}

#[tokio::test]
async fn settled_servers_have_details() {
    let servers: serde_json::Map<_, _> =
        (0..8).map(|number| (format!("odd{number}"), misbehaving_server())).collect();
    let bridge = Bridge::new(BridgeOptions::default());
    bridge.apply(servers_file(&servers.into())).await;
    within_timeout("the settled servers", bridge.wait_until_settled(TEST_TIMEOUT * 2)).await;
    for server in bridge.servers() {
        let request =
            McpServerDetailsRequest { server_name: server.name, tool_name: None, after: None };
        assert!(!bridge.details(request).await.unwrap().tools.is_empty());
    }
    bridge.stop().await;
}

#[tokio::test]
async fn missing_program_does_not_delay_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("late");
    let bridge = Bridge::new(BridgeOptions::default());
    let late = json!({"command": program, "required": true});
    bridge.apply(servers_file(&json!({"odd": misbehaving_server(), "late": late}))).await;
    bridge.wait_until_settled(Duration::from_secs(20)).await;
    assert_eq!(call_text(&bridge, "odd", "echo", json!({})).await, "{}");
    assert_eq!(bridge.missing_required(), ["late"]);
    let reason = bridge.servers().remove(0).reason.unwrap();
    assert!(reason.contains("cannot start its program"), "{reason}");
    let script = misbehaving_server()["args"][0].as_str().unwrap().to_owned();
    std::fs::write(&program, format!("#!/bin/sh\nexec python3 {script}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    wait_until("the late server", || bridge.missing_required().is_empty()).await;
    assert_eq!(call_text(&bridge, "late", "echo", json!({})).await, "{}");
    bridge.stop().await;
}

#[tokio::test]
async fn change_notifications_are_debounced() {
    let bridge = bridge(json!({"odd": misbehaving_server()})).await;
    let mut index = bridge.index();
    for _ in 0..3 {
        call_text(&bridge, "odd", "storm", json!({})).await;
    }
    call_text(&bridge, "odd", "grow", json!({})).await;
    let grown = |index: &rockbot_tool_rpc::mcp::McpIndex| {
        index.get("odd").is_some_and(|odd| odd.tool_names.iter().any(|name| name == "grown0"))
    };
    let updated =
        tokio::time::timeout(Duration::from_secs(10), index.wait_for(grown)).await.is_ok();
    assert!(updated, "the index does not contain the new tool");
    assert_eq!(bridge.registry_name("odd", "grown0").as_deref(), Some("odd__grown0"));
    let listed: u32 = call_text(&bridge, "odd", "listed", json!({})).await.parse().unwrap();
    assert!((2..=4).contains(&listed), "300 notifications, {listed} listings");
    bridge.stop().await;
}

#[tokio::test]
async fn program_gets_only_its_own_environment() {
    let mut entry = misbehaving_server();
    entry["env"] = json!({"CONFIGURED": "yes"});
    let bridge = bridge(json!({"odd": entry})).await;
    let environment = call_text(&bridge, "odd", "env", json!({})).await;
    let environment: serde_json::Value = serde_json::from_str(&environment).unwrap();
    assert_eq!(environment["CONFIGURED"], "yes");
    assert!(environment.get("PATH").is_some());
    assert!(
        environment.get("CARGO_MANIFEST_DIR").is_none(),
        "variables of the bridge are not inherited"
    );
    bridge.stop().await;
}

#[tokio::test]
async fn child_processes_end_with_their_program() {
    let bridge = bridge(json!({"odd": misbehaving_server()})).await;
    let child = call_text(&bridge, "odd", "child", json!({})).await;
    let alive = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(alive(&child));
    bridge.stop().await;
    wait_until("the end of the grandchild", || !alive(&child)).await;
}

#[tokio::test]
async fn servers_are_added_only_with_permission() {
    let request = |name: &str, command: &str| McpRegisterServerRequest {
        server_name: name.to_owned(),
        command: Some(command.to_owned()),
        arguments: vec![misbehaving_server()["args"][0].as_str().unwrap().to_owned()],
        url: None,
    };
    let closed = bridge(json!({"odd": misbehaving_server()})).await;
    let refused = closed.register(request("new", "python3")).await.unwrap_err();
    assert_eq!(refused.code, McpManageErrorCode::NotPermitted);
    closed.stop().await;

    let registration = RegistrationPolicy {
        allowed: true,
        commands: ["python3".to_owned(), "true".to_owned()].into(),
    };
    let open = Bridge::new(BridgeOptions { registration, ..BridgeOptions::default() });
    open.apply(servers_file(&json!({"odd": misbehaving_server()}))).await;
    let code = |name: &'static str, command: &'static str| {
        let (open, request) = (open.clone(), request(name, command));
        async move { open.register(request).await.map(|_| ()).map_err(|error| error.code) }
    };
    assert_eq!(code("new", "bash").await, Err(McpManageErrorCode::NotPermitted));
    assert_eq!(code("ODD", "python3").await, Err(McpManageErrorCode::Conflict));
    assert_eq!(code("a\u{1b}b", "python3").await, Err(McpManageErrorCode::InvalidRequest));
    assert_eq!(code("dead", "true").await, Err(McpManageErrorCode::Unavailable));
    assert_eq!(code("new", "python3").await, Ok(()));
    assert_eq!(call_text(&open, "New", "echo", json!({})).await, "{}");
    // Applying the file does not remove added servers.
    open.apply(servers_file(&json!({"odd": misbehaving_server()}))).await;
    assert_eq!(call_text(&open, "new", "echo", json!({})).await, "{}");
    let refused = open.unregister("odd").await.unwrap_err();
    assert_eq!(refused.code, McpManageErrorCode::NotPermitted);
    open.unregister("NEW").await.unwrap();
    assert_eq!(open.unregister("new").await.unwrap_err().code, McpManageErrorCode::NotFound);
    assert!(open.index().borrow().get("new").is_none());
    open.stop().await;
}

#[tokio::test]
async fn details_describe_server_and_tools() {
    let bridge = bridge(json!({"Odd": misbehaving_server()})).await;
    let request = |tool: Option<&str>| McpServerDetailsRequest {
        server_name: "odd".to_owned(),
        tool_name: tool.map(ToOwned::to_owned),
        after: None,
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
    let missing = bridge.details(request(Some("nothing"))).await.unwrap_err();
    assert_eq!(missing.code, McpManageErrorCode::NotFound);
    bridge.stop().await;
}
