//! A request that is not its sender's own is given up, and its tool does not run.

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

use crate::fleet::{Witness, tools};

/// A request of `user`, as the broker vouches for it, in the name of `agent`.
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

async fn check(callers: CallerPolicy, user: Option<&str>, served: bool) {
    check_at(&tool_invoke(), callers, user, served).await;
}

/// Sends a request to a worker that hears `callers`: whether it is served.
async fn check_at(key: &RoutingKey, callers: CallerPolicy, user: Option<&str>, served: bool) {
    let bed = BusFixture::memory();
    let registry = Arc::new(ToolRegistry::new());
    for tool in tools(&Arc::new(Witness::default())) {
        registry.register(tool).expect("registered");
    }
    let instance = InstanceId::generate();
    let executor = Arc::new(ToolExecutor::new(registry));
    let own = Some("rockbot.tool-handler".into());
    let options = InvokeOptions { callers, user: own, ..InvokeOptions::new(1) };
    let handler =
        ToolInvokeHandler::new(executor, bed.remote.clone(), "handler", &instance, options);
    let _workers = handler.start(&tool_invoke(), &instance).await.expect("consuming");
    let mut answers = bed.consume(reply_address("assistant", "one").queue(), 1).await;
    let sent = Publication::mandatory(key.clone(), request(user, "assistant"));
    bed.local.publish(sent).await.expect("queued");
    if served {
        next_delivery(&mut answers).await.settle(Settlement::Ack).await.expect("settled");
        assert_eq!(handler.stats().unreadable(), 0);
    } else {
        let work = QueueSpec::work(&tool_invoke());
        let mut given_up = bed.consume(QueueSpec::dead_letters_of(&work.name), 1).await;
        let letter = next_delivery(&mut given_up).await;
        assert!(letter.envelope().dead_letter_reason.is_some());
        letter.settle(Settlement::Ack).await.expect("settled");
        wait_until("the count", || handler.stats().unreadable() == 1).await;
        assert_eq!(handler.stats().ok(), 0, "it ran");
    }
}

#[tokio::test]
async fn an_agent_is_served_in_its_own_name_and_no_other() {
    for callers in [CallerPolicy::Any, CallerPolicy::Known] {
        check(callers, Some("rockbot.agent.assistant"), true).await;
        check(callers, Some("rockbot.agent.mallory"), false).await;
        check(callers, Some("rockbot.cli"), false).await;
    }
}

#[tokio::test]
async fn whoever_the_broker_does_not_know_is_served_only_where_anybody_is() {
    for user in [None, Some("guest")] {
        check(CallerPolicy::Any, user, true).await;
        check(CallerPolicy::Known, user, false).await;
    }
}

#[tokio::test]
async fn what_handlers_pass_on_is_its_askers_and_is_taken_only_where_they_send() {
    let handler = Some("rockbot.tool-handler");
    check(CallerPolicy::Known, handler, false).await;
    let suspects = quarantine_of(&tool_invoke());
    check_at(&suspects, CallerPolicy::Known, handler, true).await;
    for stranger in [None, Some("guest"), Some("rockbot.mcp-bridge"), Some("rockbot.agent.mallory")]
    {
        check_at(&suspects, CallerPolicy::Known, stranger, false).await;
    }
}
