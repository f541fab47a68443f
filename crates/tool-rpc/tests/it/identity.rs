//! Rejection of requests with a forged caller.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Publication, Settlement};
use rockbot_contracts::{
    Envelope, InstanceId, QueueSpec, RoutingKey, SessionId, ToolCallId, ToolInvokeRequest,
    identity::CallerPolicy,
    topology::{quarantine_of, tool_invoke},
};
use rockbot_testkit::{
    BusFixture,
    fixture::{next_delivery, reply_address, wait_until},
};
use rockbot_tool_rpc::{InvokeOptions, ToolInvokeHandler};
use rockbot_tools::{ToolExecutor, ToolRegistry};

use crate::fleet::{ToolEvents, tools};

/// Returns a request with the validated user `user` and the source `agent`.
fn request(user: Option<&str>, agent: &str) -> Envelope {
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: "echo".to_owned(),
        arguments: r#"{"text": "hello"}"#.to_owned(),
        session_id: SessionId::generate(),
    };
    let mut envelope = Envelope::from_payload(&request)
        .with_correlation_id(request.tool_call_id.as_str())
        .with_source(agent)
        .reply_to(reply_address(agent, "one").tool_result())
        .within(Duration::from_secs(10));
    envelope.user_id = user.map(Into::into);
    envelope
}

async fn check(callers: CallerPolicy, user: Option<&str>, accepted: bool) {
    check_at(&tool_invoke(), callers, user, accepted).await;
}

/// Asserts that a handler with the policy `callers` accepts or dead-letters a request at `key`.
async fn check_at(key: &RoutingKey, callers: CallerPolicy, user: Option<&str>, accepted: bool) {
    let bus = BusFixture::memory();
    let registry = Arc::new(ToolRegistry::new());
    for tool in tools(&Arc::new(ToolEvents::default())) {
        registry.register(tool).expect("registered");
    }
    let instance = InstanceId::generate();
    let executor = Arc::new(ToolExecutor::new(registry));
    let own = Some("rockbot.tool-handler".into());
    let options = InvokeOptions { callers, user: own, ..InvokeOptions::new(1) };
    let handler =
        ToolInvokeHandler::new(executor, bus.remote.clone(), "handler", &instance, options);
    let _workers = handler.start(&tool_invoke(), &instance).await.expect("started");
    let mut replies = bus.consume(reply_address("assistant", "one").queue(), 1).await;
    let publication = Publication::mandatory(key.clone(), request(user, "assistant"));
    bus.local.publish(publication).await.expect("published");
    if accepted {
        next_delivery(&mut replies).await.settle(Settlement::Ack).await.expect("settled");
        assert_eq!(handler.stats().unreadable(), 0);
    } else {
        let work = QueueSpec::work(&tool_invoke());
        let mut letters = bus.consume(QueueSpec::dead_letters_of(&work.name), 1).await;
        let letter = next_delivery(&mut letters).await;
        assert!(letter.envelope().dead_letter_reason.is_some());
        letter.settle(Settlement::Ack).await.expect("settled");
        wait_until("the message is counted", || handler.stats().unreadable() == 1).await;
        assert_eq!(handler.stats().ok(), 0, "the tool ran");
    }
}

#[tokio::test]
async fn agent_is_accepted_only_under_its_own_name() {
    for callers in [CallerPolicy::Any, CallerPolicy::Known] {
        check(callers, Some("rockbot.agent.assistant"), true).await;
        check(callers, Some("rockbot.agent.mallory"), false).await;
        check(callers, Some("rockbot.cli"), false).await;
    }
}

#[tokio::test]
async fn unknown_user_is_accepted_only_by_policy_any() {
    for user in [None, Some("guest")] {
        check(CallerPolicy::Any, user, true).await;
        check(CallerPolicy::Known, user, false).await;
    }
}

#[tokio::test]
async fn forwarded_request_is_accepted_only_in_quarantine_queue() {
    let handler = Some("rockbot.tool-handler");
    check(CallerPolicy::Known, handler, false).await;
    let quarantine = quarantine_of(&tool_invoke());
    check_at(&quarantine, CallerPolicy::Known, handler, true).await;
    for stranger in [None, Some("guest"), Some("rockbot.mcp-bridge"), Some("rockbot.agent.mallory")]
    {
        check_at(&quarantine, CallerPolicy::Known, stranger, false).await;
    }
}
