//! Invalid requests: the caller gets a clear error, it is counted, and the next call works.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rockbot_bus::{Publication, Request, RequestError, Settlement};
use rockbot_contracts::{
    Envelope, Executed, Message, QueueSpec, SessionId, ToolCallId, ToolError, ToolErrorCode,
    ToolInvokeRequest, ToolInvokeResponse, json::Limits, topology::tool_invoke,
};
use rockbot_testkit::{
    BusFixture,
    fixture::{assert_never, key, next_delivery, wait_until, within_timeout},
};
use rockbot_tools::{ToolHints, ToolResult};
use tokio::sync::{Notify, Semaphore};

use crate::fleet::{Fleet, agent_of, handler_of, registration, tool};

async fn send(fleet: &Fleet, envelope: Envelope) -> Result<Envelope, RequestError> {
    let id = ToolCallId::generate();
    let request = Request {
        key: tool_invoke(),
        envelope: envelope.with_correlation_id(id.as_str()),
        timeout: Duration::from_secs(10),
        grace: Duration::ZERO,
        on_interim: None,
        retry: false,
        abandoned: None,
    };
    fleet.requester.request(request).await
}

fn request(tool: &str, arguments: &str) -> ToolInvokeRequest {
    ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: tool.to_owned(),
        arguments: arguments.to_owned(),
        session_id: SessionId::generate(),
    }
}

/// Asserts that a request fails with `code` without a run, and that the next call works.
async fn check(fleet: &Fleet, envelope: Envelope, code: ToolErrorCode) -> ToolError {
    let reply = send(fleet, envelope).await.expect("a reply");
    let error: ToolError = reply.decode(Limits::default()).expect("an error");
    assert_eq!(error.code, code, "{}", error.message);
    assert_eq!(error.executed, Executed::No);
    let result = fleet.call("echo", r#"{"text": "still here"}"#).await.expect("a result");
    assert_eq!(result.to_text(), "still here");
    error
}

#[tokio::test]
async fn unreadable_request_is_counted_and_dead_lettered() {
    let fleet = Fleet::start().await;
    let queue = QueueSpec::work(&tool_invoke());
    let mut letters = fleet.bus.consume(QueueSpec::dead_letters_of(&queue.name), 10).await;
    let good = Envelope::from_payload(&request("echo", "{}"));
    let mut newer = good.clone();
    newer.wire = 2;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let cases = [
        (
            "malformed",
            Envelope::raw(ToolInvokeRequest::TYPE, b"{\"toolCallId\": ".to_vec()),
            "valid",
        ),
        ("not UTF-8", Envelope::raw(ToolInvokeRequest::TYPE, vec![0xff, 0xfe]), "valid"),
        ("empty", Envelope::raw(ToolInvokeRequest::TYPE, Vec::new()), "valid"),
        ("unknown type", Envelope::raw("Nonsense", b"{}".to_vec()), "Nonsense"),
        ("newer wire", newer, "wire version 2"),
        (
            "too deep",
            Envelope::raw(ToolInvokeRequest::TYPE, deep.into_bytes()),
            "not a valid ToolInvokeRequest",
        ),
    ];
    for (count, (case, envelope, expected)) in (1..).zip(cases) {
        let error = check(&fleet, envelope, ToolErrorCode::InvalidArguments).await;
        assert!(error.message.contains(expected), "{case}: {}", error.message);
        assert_eq!(fleet.handler.stats().unreadable(), count, "{case}");
        let letter = next_delivery(&mut letters).await;
        let reason = letter.envelope().dead_letter_reason.clone().expect("a reason");
        assert!(reason.contains(expected), "{case}: {reason}");
        letter.settle(Settlement::Ack).await.expect("settled");
    }
}

#[tokio::test]
async fn oversized_request_is_rejected_before_publishing() {
    let fleet = Fleet::start().await;
    let arguments = format!(r#"{{"text": "{}"}}"#, "x".repeat(5_000_000));
    let envelope = Envelope::from_payload(&request("echo", &arguments));
    let error = send(&fleet, envelope).await.expect_err("too large");
    assert!(error.to_string().contains("over the limit"), "{error}");
    let failure = fleet.call("echo", &arguments).await.expect_err("too large");
    assert_eq!(failure.code(), ToolErrorCode::InvalidArguments);
    assert_eq!(failure.executed(), Executed::No);
}

#[tokio::test]
async fn invalid_arguments_fail_with_location_and_expectation() {
    let fleet = Fleet::start().await;
    for (arguments, expected) in [
        (r#"{"text": 7}"#, "/text"),
        (r#"{"txt": "a"}"#, "txt"),
        ("[1]", "object"),
        ("{{{", "JSON"),
        (&"[".repeat(10_000), "deeper"),
    ] {
        // In the handler, for a caller without validation.
        let envelope = Envelope::from_payload(&request("echo", arguments));
        let error = check(&fleet, envelope, ToolErrorCode::InvalidArguments).await;
        assert!(error.message.contains(expected), "{}", error.message);
        // In the caller, before the request is sent.
        let failure = fleet.call("echo", arguments).await.expect_err("invalid");
        assert!(failure.to_string().contains(expected), "{failure}");
    }
}

#[tokio::test]
async fn unknown_tool_is_not_found() {
    let fleet = Fleet::start().await;
    let envelope = Envelope::from_payload(&request("no_such_tool", "{}"));
    let error = check(&fleet, envelope, ToolErrorCode::ToolNotFound).await;
    assert!(error.message.contains("no_such_tool"));
    assert_eq!(fleet.handler.stats().failed(&ToolErrorCode::ToolNotFound), 1);
    let failure = fleet.call("no_such_tool", "{}").await.expect_err("an unknown tool");
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound);
}

#[tokio::test]
async fn panicking_tool_fails_with_execution_failed() {
    let fleet = Fleet::start().await;
    let failure = fleet.call("panic", "{}").await.expect_err("a panic");
    assert_eq!(failure.code(), ToolErrorCode::ExecutionFailed);
    assert_eq!(failure.executed(), Executed::Yes);
    assert!(!failure.to_string().contains("on purpose"), "{failure}");
    assert!(fleet.call("echo", "{}").await.is_ok());
}

#[tokio::test]
async fn huge_output_is_truncated_with_a_note() {
    let fleet = Fleet::start().await;
    let result = fleet.call("huge", "{}").await.expect("a result");
    assert!(result.bytes() < 2 * 1024 * 1024);
    let text = result.to_text();
    let omitted = 1_000_000_000 - text.find('\n').expect("a note after the text");
    let note = format!("\n[result truncated — {omitted} chars omitted]");
    assert!(text.ends_with(&note), "{}", &text[text.len() - 80..]);
}

#[tokio::test]
async fn expired_call_does_not_start() {
    let fleet = Fleet::start().await;
    let request = request("count", "{}");
    let mut envelope = Envelope::from_payload(&request)
        .with_correlation_id(request.tool_call_id.as_str())
        .reply_to(fleet.requester.address().tool_result())
        .within(Duration::from_secs(1));
    if let Some(budget) = &mut envelope.budget {
        budget.deadline_unix_ms = 1;
    }
    let publication = Publication::mandatory(tool_invoke(), envelope);
    // The requester consumes replies from its first request on.
    fleet.call("echo", "{}").await.expect("a result");
    fleet.bus.local.publish(publication).await.expect("published");
    wait_until("the timeout", || fleet.handler.stats().failed(&ToolErrorCode::Timeout) == 1).await;
    assert_eq!(fleet.events.runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn forged_reply_to_is_dead_lettered_unexecuted() {
    let fleet = Fleet::start().await;
    let mut victim = fleet.bus.consume(QueueSpec::work(&key("user.message.victim")), 1).await;
    let request = request("count", "{}");
    let envelope = Envelope::from_payload(&request).reply_to(key("user.message.victim"));
    let publication = Publication::mandatory(tool_invoke(), envelope);
    fleet.bus.local.publish(publication).await.expect("published");
    let queue = QueueSpec::work(&tool_invoke());
    let mut letters = fleet.bus.consume(QueueSpec::dead_letters_of(&queue.name), 10).await;
    let letter = next_delivery(&mut letters).await;
    assert!(letter.envelope().dead_letter_reason.as_deref().unwrap().contains("reply-to"));
    assert_never("a forged message", victim.next()).await;
    assert_eq!(fleet.events.runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn redelivered_call_reruns_only_if_repeatable() {
    for (hints, code) in
        [(ToolHints::default(), Some(ToolErrorCode::OutcomeUnknown)), (ToolHints::READ_ONLY, None)]
    {
        let bus = BusFixture::memory();
        // A first consumer is lost with the call before the handler starts.
        let mut first = bus.consume(QueueSpec::work(&tool_invoke()), 1).await;
        let agent = agent_of(&bus, "inspect", hints);
        let calling = tokio::spawn(agent("{}"));
        drop(next_delivery(&mut first).await);
        drop(first);
        let mut definition = registration("inspect");
        definition.hints = hints;
        let inspect = tool(definition, async |_, _| Ok(ToolResult::text("seen")));
        let (_handler, _workers, _) = handler_of(&bus.remote, vec![inspect], 4).await;
        let result = within_timeout("a reply", calling).await.expect("no panic");
        match code {
            Some(code) => {
                let failure = result.expect_err("an unknown outcome");
                assert_eq!(failure.code(), code);
                assert_eq!(failure.executed(), Executed::Unknown);
                assert!(!failure.is_retryable());
            }
            None => assert_eq!(result.expect("a result").to_text(), "seen"),
        }
    }
}

#[tokio::test]
async fn call_without_handler_is_unavailable_at_once() {
    let bus = BusFixture::memory();
    let agent = agent_of(&bus, "echo", ToolHints::default());
    let failure = agent("{}").await.expect_err("no handler");
    assert_eq!(failure.code(), ToolErrorCode::Unavailable);
    assert_eq!(failure.executed(), Executed::No);
    assert!(failure.is_retryable());
}

#[tokio::test]
async fn concurrent_duplicate_runs_once_and_settles_with_the_first() {
    let bus = BusFixture::memory();
    let (started, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let runs = Arc::new(AtomicU32::new(0));
    let (tool_gate, tool_started, tool_runs) = (gate.clone(), started.clone(), runs.clone());
    let slow = tool(registration("slow"), move |_, _| {
        let (gate, started) = (tool_gate.clone(), tool_started.clone());
        tool_runs.fetch_add(1, Ordering::SeqCst);
        async move {
            started.notify_one();
            gate.acquire().await.expect("an open gate").forget();
            Ok(ToolResult::text("done"))
        }
    });
    let (handler, workers, _) = handler_of(&bus.remote, vec![slow], 4).await;
    let caller = key("tool.result.agent.one");
    let mut replies = bus.consume(QueueSpec::reply(&caller, vec![(&caller).into()]), 10).await;
    let request = request("slow", "{}");
    let envelope = Envelope::from_payload(&request)
        .with_correlation_id(request.tool_call_id.as_str())
        .reply_to(caller.clone());
    for _ in 0..2 {
        let publication = Publication::mandatory(tool_invoke(), envelope.clone());
        bus.local.publish(publication).await.expect("published");
    }
    within_timeout("the tool", started.notified()).await;
    assert_never("a reply before the end", replies.next()).await;
    gate.add_permits(2);
    let reply = next_delivery(&mut replies).await;
    assert_eq!(reply.envelope().message_type(), ToolInvokeResponse::TYPE);
    assert_never("a second reply", replies.next()).await;
    assert_eq!((runs.load(Ordering::SeqCst), handler.stats().ok()), (1, 1));
    assert!(workers.drain(Duration::from_secs(5)).await, "both deliveries are settled");
}
