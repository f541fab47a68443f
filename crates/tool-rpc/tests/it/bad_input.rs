//! Whatever comes in: a clear error to whoever asked, a counter, and the next call works.

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

async fn ask(fleet: &Fleet, envelope: Envelope) -> Result<Envelope, RequestError> {
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

/// The envelope must be answered with this code, without having run, and the fleet must go on.
async fn check(fleet: &Fleet, envelope: Envelope, code: ToolErrorCode) -> ToolError {
    let answer = ask(fleet, envelope).await.expect("an answer");
    let error: ToolError = answer.decode(Limits::default()).expect("an error");
    assert_eq!(error.code, code, "{}", error.message);
    assert_eq!(error.executed, Executed::No);
    let result = fleet.call("echo", r#"{"text": "still here"}"#).await.expect("the fleet lives");
    assert_eq!(result.to_text(), "still here");
    error
}

#[tokio::test]
async fn unreadable_requests_are_answered_counted_and_dead_lettered() {
    let fleet = Fleet::start().await;
    let queue = QueueSpec::work(&tool_invoke());
    let mut letters = fleet.bed.consume(QueueSpec::dead_letters_of(&queue.name), 10).await;
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
    for (count, (what, envelope, words)) in (1..).zip(cases) {
        let error = check(&fleet, envelope, ToolErrorCode::InvalidArguments).await;
        assert!(error.message.contains(words), "{what}: {}", error.message);
        assert_eq!(fleet.handler.stats().unreadable(), count, "{what}");
        let letter = next_delivery(&mut letters).await;
        let reason = letter.envelope().dead_letter_reason.clone().expect("a reason");
        assert!(reason.contains(words), "{what}: {reason}");
        letter.settle(Settlement::Ack).await.expect("acked");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_leaves() {
    let fleet = Fleet::start().await;
    let arguments = format!(r#"{{"text": "{}"}}"#, "x".repeat(5_000_000));
    let envelope = Envelope::from_payload(&request("echo", &arguments));
    let error = ask(&fleet, envelope).await.expect_err("too large");
    assert!(error.to_string().contains("over the limit"), "{error}");
    let failure = fleet.call("echo", &arguments).await.expect_err("too large");
    assert_eq!(failure.code(), ToolErrorCode::InvalidArguments);
    assert_eq!(failure.executed(), Executed::No);
}

#[tokio::test]
async fn bad_arguments_say_where_and_what_was_expected() {
    let fleet = Fleet::start().await;
    for (arguments, words) in [
        (r#"{"text": 7}"#, "/text"),
        (r#"{"txt": "a"}"#, "txt"),
        ("[1]", "object"),
        ("{{{", "JSON"),
        (&"[".repeat(10_000), "deeper"),
    ] {
        // At the handler, for an asker that checks nothing.
        let envelope = Envelope::from_payload(&request("echo", arguments));
        let error = check(&fleet, envelope, ToolErrorCode::InvalidArguments).await;
        assert!(error.message.contains(words), "{}", error.message);
        // At the agent's end, before anything is sent.
        let failure = fleet.call("echo", arguments).await.expect_err("invalid");
        assert!(failure.to_string().contains(words), "{failure}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_not_found() {
    let fleet = Fleet::start().await;
    let envelope = Envelope::from_payload(&request("no_such_tool", "{}"));
    let error = check(&fleet, envelope, ToolErrorCode::ToolNotFound).await;
    assert!(error.message.contains("no_such_tool"));
    assert_eq!(fleet.handler.stats().failed(&ToolErrorCode::ToolNotFound), 1);
    let failure = fleet.call("no_such_tool", "{}").await.expect_err("unknown here as well");
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound);
}

#[tokio::test]
async fn a_panic_is_an_execution_failure_and_not_the_end() {
    let fleet = Fleet::start().await;
    let failure = fleet.call("panic", "{}").await.expect_err("it panics");
    assert_eq!(failure.code(), ToolErrorCode::ExecutionFailed);
    assert_eq!(failure.executed(), Executed::Yes);
    assert!(!failure.to_string().contains("on purpose"), "{failure}");
    assert!(fleet.call("echo", "{}").await.is_ok());
}

#[tokio::test]
async fn a_gigabyte_of_output_is_cut_and_says_so() {
    let fleet = Fleet::start().await;
    let result = fleet.call("huge", "{}").await.expect("a result");
    assert!(result.bytes() < 2 * 1024 * 1024);
    let text = result.to_text();
    let omitted = 1_000_000_000 - text.find('\n').expect("a note after the text");
    let note = format!("\n[result truncated — {omitted} chars omitted]");
    assert!(text.ends_with(&note), "{}", &text[text.len() - 80..]);
}

#[tokio::test]
async fn a_call_whose_time_is_over_does_not_start() {
    let fleet = Fleet::start().await;
    let asked = request("count", "{}");
    let mut envelope = Envelope::from_payload(&asked)
        .with_correlation_id(asked.tool_call_id.as_str())
        .reply_to(fleet.requester.address().tool_result())
        .within(Duration::from_secs(1));
    if let Some(budget) = &mut envelope.budget {
        budget.deadline_unix_ms = 1;
    }
    let publication = Publication::mandatory(tool_invoke(), envelope);
    // The requester listens only once it has asked something.
    fleet.call("echo", "{}").await.expect("a result");
    fleet.bed.local.publish(publication).await.expect("taken");
    wait_until("the refusal", || fleet.handler.stats().failed(&ToolErrorCode::Timeout) == 1).await;
    assert_eq!(fleet.witness.runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_forged_reply_to_is_not_answered_and_not_run() {
    let fleet = Fleet::start().await;
    let mut victim = fleet.bed.consume(QueueSpec::work(&key("user.message.victim")), 1).await;
    let asked = request("count", "{}");
    let envelope = Envelope::from_payload(&asked).reply_to(key("user.message.victim"));
    let publication = Publication::mandatory(tool_invoke(), envelope);
    fleet.bed.local.publish(publication).await.expect("taken");
    let queue = QueueSpec::work(&tool_invoke());
    let mut letters = fleet.bed.consume(QueueSpec::dead_letters_of(&queue.name), 10).await;
    let letter = next_delivery(&mut letters).await;
    assert!(letter.envelope().dead_letter_reason.as_deref().unwrap().contains("reply-to"));
    assert_never("a forged message", victim.next()).await;
    assert_eq!(fleet.witness.runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_redelivered_call_runs_again_only_where_that_does_no_harm() {
    for (hints, code) in
        [(ToolHints::default(), Some(ToolErrorCode::OutcomeUnknown)), (ToolHints::READ_ONLY, None)]
    {
        let bed = BusFixture::memory();
        // A first worker takes the call and dies with it, before the handler is there.
        let mut first = bed.consume(QueueSpec::work(&tool_invoke()), 1).await;
        let agent = agent_of(&bed, "look", hints);
        let calling = tokio::spawn(agent("{}"));
        drop(next_delivery(&mut first).await);
        drop(first);
        let mut definition = registration("look");
        definition.hints = hints;
        let look = tool(definition, async |_, _| Ok(ToolResult::text("seen")));
        let (_handler, _workers, _) = handler_of(&bed.remote, vec![look], 4).await;
        let ended = within_timeout("an answer", calling).await.expect("no panic");
        match code {
            Some(code) => {
                let failure = ended.expect_err("it may have run");
                assert_eq!(failure.code(), code);
                assert_eq!(failure.executed(), Executed::Unknown);
                assert!(!failure.is_retryable());
            }
            None => assert_eq!(ended.expect("it may run twice").to_text(), "seen"),
        }
    }
}

#[tokio::test]
async fn nobody_serving_is_told_at_once_and_did_not_run() {
    let bed = BusFixture::memory();
    let agent = agent_of(&bed, "echo", ToolHints::default());
    let failure = agent("{}").await.expect_err("nobody serves it");
    assert_eq!(failure.code(), ToolErrorCode::Unavailable);
    assert_eq!(failure.executed(), Executed::No);
    assert!(failure.is_retryable());
}

#[tokio::test]
async fn the_same_call_twice_at_once_runs_once_and_is_settled_with_the_first() {
    let bed = BusFixture::memory();
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let runs = Arc::new(AtomicU32::new(0));
    let (inside, entered, counted) = (gate.clone(), begun.clone(), runs.clone());
    let slow = tool(registration("slow"), move |_, _| {
        let (gate, begun) = (inside.clone(), entered.clone());
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            begun.notify_one();
            gate.acquire().await.expect("the gate stays").forget();
            Ok(ToolResult::text("done"))
        }
    });
    let (handler, workers, _) = handler_of(&bed.remote, vec![slow], 4).await;
    let asker = key("tool.result.agent.one");
    let mut answers = bed.consume(QueueSpec::reply(&asker, vec![(&asker).into()]), 10).await;
    let asked = request("slow", "{}");
    let envelope = Envelope::from_payload(&asked)
        .with_correlation_id(asked.tool_call_id.as_str())
        .reply_to(asker.clone());
    for _ in 0..2 {
        let publication = Publication::mandatory(tool_invoke(), envelope.clone());
        bed.local.publish(publication).await.expect("taken");
    }
    within_timeout("the tool", begun.notified()).await;
    assert_never("an answer before the end", answers.next()).await;
    gate.add_permits(2);
    let answer = next_delivery(&mut answers).await;
    assert_eq!(answer.envelope().message_type(), ToolInvokeResponse::TYPE);
    assert_never("a second answer", answers.next()).await;
    assert_eq!((runs.load(Ordering::SeqCst), handler.stats().ok()), (1, 1));
    assert!(workers.drain(Duration::from_secs(5)).await, "both deliveries are settled");
}
