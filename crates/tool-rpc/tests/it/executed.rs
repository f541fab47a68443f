//! `executed: no` is a claim about a call: no delivery of its request ran or will run.

use std::time::Duration;

use rockbot_bus::Publication;
use rockbot_contracts::{
    Envelope, Executed, Message, RoutingKey, ToolErrorCode, ToolInvokeRequest,
    topology::tool_invoke,
};
use rockbot_testkit::fixture::{wait_until, within_timeout};

use crate::{
    journal_fixture::{Call, Fixture, call, elsewhere},
    lossy_bus::LossyBus,
};

const UNEXECUTED_TIMEOUT: (ToolErrorCode, Executed) = (ToolErrorCode::Timeout, Executed::No);
const UNKNOWN: (ToolErrorCode, Executed) = (ToolErrorCode::OutcomeUnknown, Executed::Unknown);

#[tokio::test]
async fn call_reported_unexecuted_never_runs_later() {
    for tool in ["write", "set", "missing"] {
        let mut fixture = Fixture::new().await;
        let _here = fixture.handler(&tool_invoke(), true).await;
        let _there = fixture.handler(&elsewhere(), true).await;
        let call = call(tool);
        fixture.send_within(&elsewhere(), &call, Duration::ZERO).await;
        assert_eq!(fixture.error().await, UNEXECUTED_TIMEOUT);
        for maybe_redelivered in [false, true] {
            fixture.send(&tool_invoke(), &Call { maybe_redelivered, ..call.clone() }).await;
            assert_eq!(fixture.error().await, UNEXECUTED_TIMEOUT);
        }
        assert_eq!(fixture.runs(), 0);
    }
}

#[tokio::test]
async fn late_copy_returns_result_of_the_run() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    // A first delivery that a handler held until the deadline had passed.
    fixture.send_within(&elsewhere(), &call, Duration::ZERO).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn full_handler_returns_result_of_the_run_elsewhere() {
    // Calls of one tool that a handler runs, and that wait in it.
    const RUNNING: u64 = 6;
    const WAITING: u64 = 64;
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let there = fixture.handler(&elsewhere(), true).await;
    let ran = call("write");
    fixture.send(&tool_invoke(), &ran).await;
    assert_eq!(fixture.result().await, "done, run 1");
    fixture.close_gate();
    for _ in 0..RUNNING + WAITING {
        fixture.send(&elsewhere(), &call("write")).await;
    }
    wait_until("a full queue", || there.handler.load().waiting == WAITING).await;
    fixture.send(&elsewhere(), &ran).await;
    assert_eq!(fixture.result().await, "done, run 1");
    // A call that no handler ran.
    let rejected = call("write");
    fixture.send(&elsewhere(), &rejected).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Overloaded, Executed::No));
    fixture.send(&tool_invoke(), &rejected).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Overloaded, Executed::No));
}

#[tokio::test]
async fn handler_that_lost_its_lease_does_not_deny_the_run() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("refuse");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    fixture.clock.advance(Duration::from_secs(11));
    let _there = fixture.handler(&elsewhere(), true).await;
    fixture.send(&elsewhere(), &Call { maybe_redelivered: true, ..call }).await;
    assert_eq!(fixture.error().await, UNKNOWN);
    // The first handler continues, and its tool refuses the call.
    fixture.gate.add_permits(1);
    assert_eq!(fixture.error().await, UNKNOWN);
}

#[tokio::test]
async fn refusal_without_journal_leaves_outcome_unknown() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    fixture.send(&tool_invoke(), &call("refuse")).await;
    within_timeout("the tool", fixture.started.notified()).await;
    fixture.store.close().await;
    fixture.gate.add_permits(1);
    assert_eq!(fixture.error().await, UNKNOWN);
}

#[tokio::test]
async fn redelivered_refused_call_is_unexecuted_only_with_proof() {
    for (shared, expected) in
        [(true, (ToolErrorCode::NotPermitted, Executed::No)), (false, UNKNOWN)]
    {
        let mut fixture = Fixture::new().await;
        let _here = fixture.handler(&tool_invoke(), shared).await;
        let retry = Call { maybe_redelivered: true, ..call("refuse") };
        fixture.send(&tool_invoke(), &retry).await;
        assert_eq!(fixture.error().await, expected);
    }
}

#[tokio::test]
async fn reused_id_does_not_deny_an_earlier_run() {
    let mut fixture = Fixture::new().await;
    let here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    let ran = call("write");
    fixture.send(&elsewhere(), &ran).await;
    assert_eq!(fixture.result().await, "done, run 1");
    // A call with the same id runs here, and has no record, because it is read-only.
    fixture.close_gate();
    let mut reader = ran.clone();
    reader.request.tool_name = "read".to_owned();
    fixture.send(&tool_invoke(), &reader).await;
    wait_until("the read-only call", || here.handler.in_progress() == 1).await;
    fixture.send(&tool_invoke(), &ran).await;
    assert_eq!(fixture.result().await, "done, run 1");
    // Other calls with that id cannot start, because the record is that of the first one.
    let other = Call { agent: "another".to_owned(), ..ran };
    let mut unrecorded = call("write");
    unrecorded.request.tool_call_id = reader.request.tool_call_id.clone();
    unrecorded.request.arguments = r#"{"text":"other"}"#.to_owned();
    for conflicting in [other, unrecorded] {
        fixture.send(&tool_invoke(), &conflicting).await;
        assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    }
}

#[tokio::test]
async fn reused_id_without_record_leaves_outcome_unknown() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let reader = call("read");
    fixture.send(&tool_invoke(), &reader).await;
    wait_until("the read-only call", || here.handler.in_progress() == 1).await;
    let mut writer = reader.clone();
    writer.request.tool_name = "write".to_owned();
    fixture.send(&tool_invoke(), &writer).await;
    assert_eq!(fixture.error().await, UNKNOWN);
}

#[tokio::test]
async fn redelivered_call_with_reused_id_is_unexecuted_only_with_proof() {
    for (shared, expected) in
        [(true, (ToolErrorCode::NotPermitted, Executed::No)), (false, UNKNOWN)]
    {
        let mut fixture = Fixture::new().await;
        let _here = fixture.handler(&tool_invoke(), shared).await;
        let first = call("write");
        fixture.send(&tool_invoke(), &first).await;
        assert_eq!(fixture.result().await, "done, run 1");
        // Another handler, with another journal, may have run this one.
        let other = Call { agent: "another".to_owned(), maybe_redelivered: true, ..first };
        fixture.send(&tool_invoke(), &other).await;
        assert_eq!(fixture.error().await, expected);
    }
}

#[tokio::test]
async fn copy_reports_outcome_of_cancelled_runner() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    fixture.send(&elsewhere(), &call).await;
    wait_until("the copy", || there.handler.in_progress() == 1).await;
    fixture.cancel(&call).await;
    for _ in 0..2 {
        assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::Yes));
    }
}

#[tokio::test]
async fn copy_reports_outcome_of_timed_out_runner() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send_within(&tool_invoke(), &call, Duration::from_millis(600)).await;
    within_timeout("the tool", fixture.started.notified()).await;
    fixture.send_within(&elsewhere(), &call, Duration::from_millis(100)).await;
    for _ in 0..2 {
        assert_eq!(fixture.error().await, (ToolErrorCode::Timeout, Executed::Yes));
    }
}

#[tokio::test]
async fn cancelled_call_stays_cancelled_for_later_copies() {
    // Calls of one tool that a handler runs.
    const RUNNING: usize = 6;
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    for _ in 0..RUNNING {
        fixture.send(&tool_invoke(), &call("read")).await;
    }
    let call = call("read");
    fixture.send(&tool_invoke(), &call).await;
    wait_until("a waiting call", || here.handler.load().waiting == 1).await;
    fixture.cancel(&call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::No));
    fixture.gate.add_permits(RUNNING + 1);
    for _ in 0..RUNNING {
        fixture.result().await;
    }
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Cancelled, Executed::No));
    assert_eq!(fixture.runs(), 6);
}

/// Sends a request that cannot be read, with the id of `call`.
async fn send_unreadable(fixture: &Fixture, at: &RoutingKey, call: &Call) {
    let mut envelope = Envelope::raw(ToolInvokeRequest::TYPE, b"{\"toolCallId\": ".to_vec())
        .with_correlation_id(call.request.tool_call_id.as_str())
        .reply_to(fixture.caller.clone())
        .with_source(call.agent.as_str())
        .within(Duration::from_secs(60));
    if call.maybe_redelivered {
        envelope = envelope.next_attempt();
    }
    let publication = Publication::mandatory(at.clone(), envelope);
    fixture.bus.local.publish(publication).await.expect("published");
}

#[tokio::test]
async fn unreadable_copy_does_not_deny_a_run() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    // A running call, and a read-only one, which has no record.
    for tool in ["write", "read"] {
        let running = call(tool);
        fixture.send(&tool_invoke(), &running).await;
        wait_until("the call", || here.handler.in_progress() == 1).await;
        within_timeout("the tool", fixture.started.notified()).await;
        send_unreadable(&fixture, &tool_invoke(), &running).await;
        assert_eq!(fixture.error().await, UNKNOWN, "{tool} runs here");
        if tool == "write" {
            send_unreadable(&fixture, &elsewhere(), &running).await;
            assert_eq!(fixture.error().await, UNKNOWN, "{tool} runs elsewhere");
        }
        fixture.gate.add_permits(1);
        fixture.result().await;
        wait_until("no call is in progress", || here.handler.in_progress() == 0).await;
        if tool == "write" {
            send_unreadable(&fixture, &elsewhere(), &running).await;
            assert_eq!(fixture.error().await, UNKNOWN, "{tool} ran elsewhere");
        }
    }
}

#[tokio::test]
async fn unreadable_request_reported_unexecuted_never_runs_later() {
    let unreadable = (ToolErrorCode::InvalidArguments, Executed::No);
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    for at in [tool_invoke(), elsewhere()] {
        send_unreadable(&fixture, &at, &call).await;
        assert_eq!(fixture.error().await, unreadable);
    }
    fixture.send(&elsewhere(), &call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    assert_eq!(fixture.runs(), 0);
}

#[tokio::test]
async fn unreadable_request_without_proof_leaves_outcome_unknown() {
    // Another journal may have the call.
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), false).await;
    let retry = Call { maybe_redelivered: true, ..call("write") };
    send_unreadable(&fixture, &tool_invoke(), &retry).await;
    assert_eq!(fixture.error().await, UNKNOWN);
    // The journal is out of reach.
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    fixture.store.close().await;
    send_unreadable(&fixture, &tool_invoke(), &call("write")).await;
    assert_eq!(fixture.error().await, UNKNOWN);
}

#[tokio::test]
async fn only_the_single_possible_start_is_denied_without_shared_journal() {
    let mut fixture = Fixture::new().await;
    let _handler = fixture.handler(&tool_invoke(), false).await;
    for (tool, has_client_key, executed) in [
        ("write", false, Executed::No),
        ("read", false, Executed::No),
        ("read", true, Executed::No),
        // Other handlers start redelivered calls of this tool.
        ("set", false, Executed::Unknown),
        // A client may have sent this call through another process, to a handler with its own journal.
        ("write", true, Executed::Unknown),
    ] {
        let call = Call { has_client_key, ..call(tool) };
        fixture.send_within(&tool_invoke(), &call, Duration::ZERO).await;
        let expected = (ToolErrorCode::Timeout, executed);
        assert_eq!(fixture.error().await, expected, "{tool}, with a key: {has_client_key}");
    }
    // Every handler rejects these arguments.
    let mut invalid = call("set");
    invalid.request.arguments = "5".to_owned();
    fixture.send(&tool_invoke(), &invalid).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::InvalidArguments, Executed::No));
    // A call of a client's key runs.
    let call = Call { has_client_key: true, ..call("write") };
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn call_of_client_key_is_denied_with_shared_journal() {
    let mut fixture = Fixture::new().await;
    let _handler = fixture.handler(&tool_invoke(), true).await;
    let call = Call { has_client_key: true, ..call("write") };
    fixture.send_within(&tool_invoke(), &call, Duration::ZERO).await;
    assert_eq!(fixture.error().await, UNEXECUTED_TIMEOUT);
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.error().await, UNEXECUTED_TIMEOUT);
}

#[tokio::test]
async fn copy_before_the_deadline_finds_the_record_of_the_run() {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut fixture = Fixture { retention: 10 * MINUTE, ..Fixture::new().await };
    let _handler = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send_within(&tool_invoke(), &call, 60 * MINUTE).await;
    assert_eq!(fixture.result().await, "done, run 1");
    fixture.clock.advance(50 * MINUTE);
    let copy = Call { maybe_redelivered: true, ..call };
    fixture.send_within(&tool_invoke(), &copy, 10 * MINUTE).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn copy_older_than_records_does_not_run() {
    let mut fixture = Fixture::new().await;
    let _handler = fixture.handler(&tool_invoke(), true).await;
    let age = fixture.retention;
    // As a dead letter that is replayed after its record has expired.
    let old = Call { maybe_redelivered: true, age, ..call("write") };
    fixture.send(&tool_invoke(), &old).await;
    assert_eq!(fixture.error().await, UNKNOWN);
    // A call that ran may have been longer ago, too.
    let late = Call { age, ..call("write") };
    fixture.send_within(&tool_invoke(), &late, Duration::ZERO).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Timeout, Executed::Unknown));
    assert_eq!(fixture.runs(), 0);
    let repeatable = Call { maybe_redelivered: true, age, ..call("set") };
    fixture.send(&tool_invoke(), &repeatable).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let young =
        Call { maybe_redelivered: true, age: age - Duration::from_secs(3600), ..call("write") };
    fixture.send(&tool_invoke(), &young).await;
    assert_eq!(fixture.result().await, "done, run 2");
}

#[tokio::test]
async fn record_of_another_call_is_no_proof_for_a_client_key_without_shared_journal() {
    let mut fixture = Fixture::new().await;
    let _handler = fixture.handler(&tool_invoke(), false).await;
    let recorded = call("write");
    fixture.send(&tool_invoke(), &recorded).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let mut other = recorded.clone();
    other.request.arguments = r#"{"text": "other"}"#.to_owned();
    fixture.send(&tool_invoke(), &other).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    fixture.send(&tool_invoke(), &Call { has_client_key: true, ..other }).await;
    assert_eq!(fixture.error().await, UNKNOWN);
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn handler_is_silent_about_a_call_that_is_redelivered() {
    // Calls of one tool that a handler runs.
    const RUNNING: usize = 6;
    let fixture = Fixture::new().await;
    fixture.close_gate();
    let (bus, connection) = LossyBus::wrap(fixture.bus.remote.clone());
    let here = fixture.handler_on(&bus, &tool_invoke(), true).await;
    for _ in 0..RUNNING {
        fixture.send(&tool_invoke(), &call("write")).await;
    }
    wait_until("running calls", || here.handler.load().running == RUNNING as u64).await;
    fixture.send_within(&tool_invoke(), &call("write"), Duration::from_millis(500)).await;
    wait_until("a waiting call", || here.handler.load().waiting == 1).await;
    connection.lose();
    // Until its deadline.
    wait_until("no waiting call", || here.handler.in_progress() == RUNNING).await;
    assert_eq!(fixture.entries().await, RUNNING, "the waiting call has no record");
}
