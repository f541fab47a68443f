//! Details, registration and removal of MCP servers over the bus.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Publication, Settlement};
use rockbot_contracts::{
    Envelope, Executed, InstanceId, MessageId, QueueSpec, RoutingKey, SessionId, ToolErrorCode,
    identity::CallerPolicy,
    json::Limits,
    mcp::{McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetailsRequest},
    topology::{mcp_manage, mcp_manage_at, tool_invoke_mcp, tool_invoke_mcp_at},
};
use rockbot_testkit::fixture::{
    BusFixture, assert_never, key, next_delivery, reply_address, wait_until, within_timeout,
};
use rockbot_tool_rpc::{InvokeOptions, mcp::McpGateway};
use rockbot_tools::{ToolContext, ToolResult};
use serde_json::json;

use crate::{
    fleet::{handler_at, registration, registry_of, tool},
    mcp_fixture::{Bridge, ScriptedGateway, agent, definition, details_request, names, server},
};

fn register_request(server: &str) -> McpRegisterServerRequest {
    McpRegisterServerRequest {
        server_name: server.to_owned(),
        command: Some("x".to_owned()),
        arguments: Vec::new(),
        url: None,
    }
}

#[tokio::test]
async fn details_come_from_the_bridge_with_the_server() {
    let bus = BusFixture::memory();
    let one = Bridge::start(&bus, "one", ScriptedGateway::new([server("git", &["log"])])).await;
    let two = Bridge::start(&bus, "two", ScriptedGateway::new([server("Time", &["now"])])).await;
    let agent = agent(&bus, "one").await;
    wait_until("both servers", || names(agent.as_ref()) == ["git", "Time"]).await;
    // Repeated: a shared queue would deliver every second request to the wrong bridge.
    for _ in 0..6 {
        let details = agent.details(details_request("time")).await.expect("details");
        assert_eq!(details.tools, [definition("now")], "with its schema unchanged");
        assert_eq!(details.server, server("Time", &["now"]));
    }
    assert_eq!(one.gateway.requested.lock().unwrap().len(), 0);
    assert_eq!(two.gateway.requested.lock().unwrap().len(), 6);
    let error = agent.details(details_request("nowhere")).await.expect_err("an unknown server");
    assert_eq!(error.code, McpManageErrorCode::NotFound);
}

#[tokio::test]
async fn details_fall_back_to_another_bridge() {
    let bus = BusFixture::memory();
    let dead = Bridge::start(&bus, "a", ScriptedGateway::new([server("git", &["log"])])).await;
    let _live = Bridge::start(&bus, "b", ScriptedGateway::new([server("git", &["log"])])).await;
    let agent = agent(&bus, "one").await;
    wait_until("the server", || names(agent.as_ref()) == ["git"]).await;
    assert!(dead.manage.drain(Duration::from_secs(1)).await);
    drop(dead.announcer);
    agent.details(details_request("git")).await.expect("details of the other bridge");
}

#[tokio::test]
async fn details_larger_than_a_message_arrive_in_parts() {
    let bus = BusFixture::memory();
    let tools: Vec<_> = (0..30_000).map(|number| format!("tool-{number}")).collect();
    let tools: Vec<_> = tools.iter().map(String::as_str).collect();
    let bridge = Bridge::start(&bus, "b", ScriptedGateway::new([server("big", &tools)])).await;
    let agent = agent(&bus, "one").await;
    wait_until("the server", || names(agent.as_ref()) == ["big"]).await;
    let details = agent.details(details_request("big")).await.expect("details");
    let bytes = serde_json::to_vec(&details.tools).expect("JSON").len();
    assert!(bytes > Limits::default().bytes, "{bytes} bytes fit into a message");
    let received: Vec<_> = details.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(received == tools, "all tools in their order");
    assert!(bridge.gateway.requested.lock().unwrap().len() > 4);
}

#[tokio::test]
async fn server_is_registered_and_removed_over_the_bus() {
    let bus = BusFixture::memory();
    let _bridge = Bridge::start(&bus, "b", ScriptedGateway::new([])).await;
    let agent = agent(&bus, "one").await;
    let registered = agent.register(register_request("new")).await.expect("a server");
    assert_eq!(registered.name, "new");
    wait_until("the registered server", || names(agent.as_ref()) == ["new"]).await;
    agent.unregister("NEW").await.expect("the removal");
    wait_until("the removed server", || names(agent.as_ref()).is_empty()).await;
    let error = agent.unregister("new").await.expect_err("an unknown server");
    assert_eq!(error.code, McpManageErrorCode::NotFound);
}

#[tokio::test]
async fn request_without_bridge_fails_at_once() {
    let bus = BusFixture::memory();
    let agent = agent(&bus, "one").await;
    let error = agent.details(details_request("git")).await.expect_err("no bridge");
    assert_eq!(error.code, McpManageErrorCode::Unavailable);
    assert!(error.message.contains("no bridge"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn hung_server_fails_with_the_bridges_timeout() {
    let bus = BusFixture::memory();
    let gateway = ScriptedGateway::new_hanging(server("stuck", &[]));
    let _bridge = Bridge::start(&bus, "b", gateway).await;
    let agent = agent(&bus, "one").await;
    wait_until("the server", || names(agent.as_ref()) == ["stuck"]).await;
    let began = tokio::time::Instant::now();
    let error = agent.details(details_request("stuck")).await.expect_err("a timeout");
    assert_eq!(error.code, McpManageErrorCode::Unavailable);
    assert!(error.message.contains("the server did not reply"), "not the bridge: {error}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// Asserts that a bridge accepts or dead-letters a request with the validated user `user`.
async fn check(callers: CallerPolicy, user: Option<&str>, reply_to: RoutingKey, accepted: bool) {
    let bus = BusFixture::memory();
    let gateway = ScriptedGateway::new([server("git", &[])]);
    let _bridge = Bridge::start_for(&bus, "b", gateway.clone(), callers).await;
    let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
    let mut replies = bus.consume(queue, 1).await;
    let mut envelope = Envelope::from_payload(&details_request("git"))
        .with_correlation_id(MessageId::generate().as_str())
        .with_source("assistant")
        .reply_to(reply_to);
    envelope.user_id = user.map(Into::into);
    bus.local.publish(Publication::mandatory(mcp_manage(), envelope)).await.expect("published");
    if accepted {
        next_delivery(&mut replies).await.settle(Settlement::Ack).await.expect("settled");
    } else {
        let work = QueueSpec::work(&mcp_manage());
        let mut letters = bus.consume(QueueSpec::dead_letters_of(&work.name), 1).await;
        let letter = next_delivery(&mut letters).await;
        assert!(letter.envelope().dead_letter_reason.is_some());
        letter.settle(Settlement::Ack).await.expect("settled");
        assert_never("a reply", replies.next()).await;
        assert!(gateway.requested.lock().unwrap().is_empty(), "a request reached the gateway");
    }
}

#[tokio::test]
async fn request_with_forged_caller_is_dead_lettered() {
    let own = || reply_address("assistant", "one").for_mcp_management().reply_to();
    for callers in [CallerPolicy::Any, CallerPolicy::Known] {
        check(callers, Some("rockbot.agent.assistant"), own(), true).await;
        check(callers, Some("rockbot.agent.mallory"), own(), false).await;
    }
    check(CallerPolicy::Any, None, own(), true).await;
    check(CallerPolicy::Known, None, own(), false).await;
}

#[tokio::test]
async fn reply_to_of_another_kind_is_dead_lettered() {
    for elsewhere in ["tool.result.assistant.one", "user.message.victim", "mcp.manage.at.other"] {
        check(CallerPolicy::Any, None, key(elsewhere), false).await;
    }
}

#[tokio::test]
async fn unreadable_request_gets_error_and_is_dead_lettered() {
    let bus = BusFixture::memory();
    let _bridge = Bridge::start(&bus, "b", ScriptedGateway::new([])).await;
    let reply_to = reply_address("assistant", "one").for_mcp_management();
    let mut replies = bus.consume(reply_to.queue(), 1).await;
    let work = QueueSpec::work(&mcp_manage());
    let mut letters = bus.consume(QueueSpec::dead_letters_of(&work.name), 1).await;
    for body in [&b"{"[..], b"{}", &[0xff]] {
        let envelope = Envelope::raw("McpServerDetailsRequest", body.to_vec())
            .with_correlation_id("id")
            .reply_to(reply_to.reply_to());
        bus.local.publish(Publication::mandatory(mcp_manage(), envelope)).await.expect("published");
        let reply = next_delivery(&mut replies).await;
        let error: McpManageError = reply.envelope().decode(Limits::default()).expect("an error");
        assert_eq!(error.code, McpManageErrorCode::InvalidRequest);
        reply.settle(Settlement::Ack).await.expect("settled");
        next_delivery(&mut letters).await.settle(Settlement::Ack).await.expect("settled");
    }
}

#[tokio::test]
async fn call_goes_to_a_bridge_with_the_server() {
    let bus = BusFixture::memory();
    let agent = agent(&bus, "one").await;
    let mut bridges = Vec::new();
    for (name, servers) in [("a", vec!["both servers"]), ("b", vec!["both servers", "alone"])] {
        let instance = InstanceId::new(name).unwrap();
        let named_tool =
            tool(registration("x"), move |_, _| std::future::ready(Ok(ToolResult::text(name))));
        let own = servers.clone();
        let resolver = move |server: &str, _: &str| {
            own.iter().any(|one| one.eq_ignore_ascii_case(server)).then(|| "x".to_owned())
        };
        let options = InvokeOptions::new(4).with_tool_resolver(Arc::new(resolver));
        let registry = registry_of(vec![named_tool]);
        let (handler, workers) =
            handler_at(&tool_invoke_mcp(), &bus.remote, registry, &instance, options).await;
        let inbox = QueueSpec::inbox(&tool_invoke_mcp_at(&instance));
        let worker = handler.start_worker(inbox).await.expect("started");
        let servers = servers.into_iter().map(|name| server(name, &["read"]));
        let bridge = Bridge::start(&bus, name, ScriptedGateway::new(servers)).await;
        bridges.push((handler, workers, worker, bridge));
    }
    wait_until("the server", || names(agent.as_ref()) == ["alone", "both servers"]).await;
    let call = async |server| {
        let name = reply_address("agent", "one").agent().clone();
        let context = ToolContext::new("read", SessionId::generate(), name);
        agent.call(server, "read", json!({}), &context).await
    };
    let mut called = std::collections::BTreeSet::new();
    // After the discovery time, calls of a server that both have are load-balanced.
    let shared = async {
        while called.len() < 2 {
            assert_eq!(call("ALONE").await.expect("a result").to_text(), "b");
            called.insert(call("both servers").await.expect("a result").to_text().into_owned());
        }
    };
    within_timeout("calls of both bridges", shared).await;
    let failure = call("nowhere").await.expect_err("an unknown server");
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound);
    assert_eq!(failure.executed(), Executed::No);
}

#[tokio::test]
async fn request_to_a_dead_bridge_fails_at_once() {
    let bus = BusFixture::memory();
    let instance = InstanceId::new("dead").unwrap();
    let request: McpServerDetailsRequest = details_request("git");
    let envelope = Envelope::from_payload(&request).with_correlation_id("id");
    let publication = Publication::mandatory(mcp_manage_at(&instance), envelope);
    assert!(bus.local.publish(publication).await.is_err());
}
