//! Showing, adding and removing MCP servers over the bus.

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
    mcp_stage::{Bridge, ScriptedGateway, about, agent, definition, names, server},
};

fn add(server: &str) -> McpRegisterServerRequest {
    McpRegisterServerRequest {
        server_name: server.to_owned(),
        command: Some("x".to_owned()),
        arguments: Vec::new(),
        url: None,
    }
}

#[tokio::test]
async fn a_server_is_shown_by_the_bridge_that_has_it() {
    let bed = BusFixture::memory();
    let one = Bridge::start(&bed, "one", ScriptedGateway::of([server("git", &["log"])])).await;
    let two = Bridge::start(&bed, "two", ScriptedGateway::of([server("Time", &["now"])])).await;
    let known = agent(&bed, "one").await;
    wait_until("both", || names(known.as_ref()) == ["git", "Time"]).await;
    // Many times: a shared queue would hand every other one to the wrong bridge.
    for _ in 0..6 {
        let details = known.details(about("time")).await.expect("shown");
        assert_eq!(details.tools, [definition("now")], "with its schema unchanged");
        assert_eq!(details.server, server("Time", &["now"]));
    }
    assert_eq!(one.gateway.asked.lock().unwrap().len(), 0);
    assert_eq!(two.gateway.asked.lock().unwrap().len(), 6);
    let error = known.details(about("nowhere")).await.expect_err("nobody has it");
    assert_eq!(error.code, McpManageErrorCode::NotFound);
}

#[tokio::test]
async fn a_server_that_moved_is_shown_by_another_bridge() {
    let bed = BusFixture::memory();
    let dies = Bridge::start(&bed, "a", ScriptedGateway::of([server("git", &["log"])])).await;
    let _lives = Bridge::start(&bed, "b", ScriptedGateway::of([server("git", &["log"])])).await;
    let known = agent(&bed, "one").await;
    wait_until("known", || names(known.as_ref()) == ["git"]).await;
    assert!(dies.manage.drain(Duration::from_secs(1)).await);
    drop(dies.announcer);
    known.details(about("git")).await.expect("shown by the other");
}

#[tokio::test]
async fn a_server_is_added_and_removed_over_the_bus() {
    let bed = BusFixture::memory();
    let _bridge = Bridge::start(&bed, "b", ScriptedGateway::of([])).await;
    let known = agent(&bed, "one").await;
    let added = known.register(add("new")).await.expect("added");
    assert_eq!(added.name, "new");
    wait_until("announced", || names(known.as_ref()) == ["new"]).await;
    known.unregister("NEW").await.expect("removed");
    wait_until("gone", || names(known.as_ref()).is_empty()).await;
    let error = known.unregister("new").await.expect_err("not there");
    assert_eq!(error.code, McpManageErrorCode::NotFound);
}

#[tokio::test]
async fn without_a_bridge_that_is_told_at_once() {
    let bed = BusFixture::memory();
    let known = agent(&bed, "one").await;
    let error = known.details(about("git")).await.expect_err("nobody is there");
    assert_eq!(error.code, McpManageErrorCode::Unavailable);
    assert!(error.message.contains("no bridge"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_told_in_time() {
    let bed = BusFixture::memory();
    let gateway = ScriptedGateway::that_hangs(server("stuck", &[]));
    let _bridge = Bridge::start(&bed, "b", gateway).await;
    let known = agent(&bed, "one").await;
    wait_until("known", || names(known.as_ref()) == ["stuck"]).await;
    let began = tokio::time::Instant::now();
    let error = known.details(about("stuck")).await.expect_err("it hangs");
    assert_eq!(error.code, McpManageErrorCode::Unavailable);
    assert!(error.message.contains("the server did not reply"), "not the bridge: {error}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A request of `user` in the name of `agent`, and what becomes of it.
async fn check(askers: CallerPolicy, user: Option<&str>, reply_to: RoutingKey, served: bool) {
    let bed = BusFixture::memory();
    let gateway = ScriptedGateway::of([server("git", &[])]);
    let _bridge = Bridge::hearing(&bed, "b", gateway.clone(), askers).await;
    let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
    let mut answers = bed.consume(queue, 1).await;
    let mut envelope = Envelope::from_payload(&about("git"))
        .with_correlation_id(MessageId::generate().as_str())
        .with_source("assistant")
        .reply_to(reply_to);
    envelope.user_id = user.map(Into::into);
    bed.local.publish(Publication::mandatory(mcp_manage(), envelope)).await.expect("queued");
    if served {
        next_delivery(&mut answers).await.settle(Settlement::Ack).await.expect("settled");
    } else {
        let work = QueueSpec::work(&mcp_manage());
        let mut given_up = bed.consume(QueueSpec::dead_letters_of(&work.name), 1).await;
        let letter = next_delivery(&mut given_up).await;
        assert!(letter.envelope().dead_letter_reason.is_some());
        letter.settle(Settlement::Ack).await.expect("settled");
        assert_never("an answer", answers.next()).await;
        assert!(gateway.asked.lock().unwrap().is_empty(), "it was asked");
    }
}

#[tokio::test]
async fn a_request_that_is_not_its_senders_own_is_given_up() {
    let own = || reply_address("assistant", "one").for_mcp_management().reply_to();
    for askers in [CallerPolicy::Any, CallerPolicy::Known] {
        check(askers, Some("rockbot.agent.assistant"), own(), true).await;
        check(askers, Some("rockbot.agent.mallory"), own(), false).await;
    }
    check(CallerPolicy::Any, None, own(), true).await;
    check(CallerPolicy::Known, None, own(), false).await;
}

#[tokio::test]
async fn an_answer_goes_to_no_other_kind_of_address() {
    for elsewhere in ["tool.result.assistant.one", "user.message.victim", "mcp.manage.at.other"] {
        check(CallerPolicy::Any, None, key(elsewhere), false).await;
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_answered_and_kept() {
    let bed = BusFixture::memory();
    let _bridge = Bridge::start(&bed, "b", ScriptedGateway::of([])).await;
    let reply_to = reply_address("assistant", "one").for_mcp_management();
    let mut answers = bed.consume(reply_to.queue(), 1).await;
    let work = QueueSpec::work(&mcp_manage());
    let mut letters = bed.consume(QueueSpec::dead_letters_of(&work.name), 1).await;
    for body in [&b"{"[..], b"{}", &[0xff]] {
        let envelope = Envelope::raw("McpServerDetailsRequest", body.to_vec())
            .with_correlation_id("id")
            .reply_to(reply_to.reply_to());
        bed.local.publish(Publication::mandatory(mcp_manage(), envelope)).await.expect("queued");
        let answer = next_delivery(&mut answers).await;
        let error: McpManageError = answer.envelope().decode(Limits::default()).expect("an error");
        assert_eq!(error.code, McpManageErrorCode::InvalidRequest);
        answer.settle(Settlement::Ack).await.expect("settled");
        next_delivery(&mut letters).await.settle(Settlement::Ack).await.expect("settled");
    }
}

#[tokio::test]
async fn a_call_goes_to_a_bridge_that_has_the_server() {
    let bed = BusFixture::memory();
    let known = agent(&bed, "one").await;
    let mut kept = Vec::new();
    for (name, servers) in [("a", vec!["both"]), ("b", vec!["both", "alone"])] {
        let instance = InstanceId::new(name).unwrap();
        let says =
            tool(registration("x"), move |_, _| std::future::ready(Ok(ToolResult::text(name))));
        let own = servers.clone();
        let addressing = move |server: &str, _: &str| {
            own.iter().any(|one| one.eq_ignore_ascii_case(server)).then(|| "x".to_owned())
        };
        let options = InvokeOptions::new(4).with_tool_resolver(Arc::new(addressing));
        let registry = registry_of(vec![says]);
        let (handler, workers) =
            handler_at(&tool_invoke_mcp(), &bed.remote, registry, &instance, options).await;
        let inbox = QueueSpec::inbox(&tool_invoke_mcp_at(&instance));
        let also = handler.start_worker(inbox).await.expect("consuming");
        let servers = servers.into_iter().map(|name| server(name, &["read"]));
        let bridge = Bridge::start(&bed, name, ScriptedGateway::of(servers)).await;
        kept.push((handler, workers, also, bridge));
    }
    wait_until("known", || names(known.as_ref()) == ["alone", "both"]).await;
    let call = async |server| {
        let agent = reply_address("agent", "one").agent().clone();
        let context = ToolContext::new("read", SessionId::generate(), agent);
        known.call(server, "read", json!({}), &context).await
    };
    let mut who = std::collections::BTreeSet::new();
    // Once every bridge had the time to be heard, what both have is shared between them.
    let shared = async {
        while who.len() < 2 {
            assert_eq!(call("ALONE").await.expect("there").to_text(), "b");
            who.insert(call("both").await.expect("there").to_text().into_owned());
        }
    };
    within_timeout("both to be asked", shared).await;
    let failure = call("nowhere").await.expect_err("nobody has it");
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound);
    assert_eq!(failure.executed(), Executed::No);
}

#[tokio::test]
async fn a_request_to_a_bridge_that_died_fails_at_once() {
    let bed = BusFixture::memory();
    let instance = InstanceId::new("dead").unwrap();
    let request: McpServerDetailsRequest = about("git");
    let envelope = Envelope::from_payload(&request).with_correlation_id("id");
    let sent = Publication::mandatory(mcp_manage_at(&instance), envelope);
    assert!(bed.local.publish(sent).await.is_err());
}
