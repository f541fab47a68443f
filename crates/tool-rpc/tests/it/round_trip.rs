//! Calls over the bus, from request to reply.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use rockbot_bus::{Publication, Requester};
use rockbot_contracts::{
    AgentName, Envelope, Executed, HandlerPool, PoolName, QueueSpec, SessionId, ToolCallId,
    ToolCancel, ToolErrorCode, ToolInvokeResponse,
    json::Limits,
    topology::{tool_cancel, tool_invoke},
};
use rockbot_testkit::fixture::{
    BusFixture, next_delivery, reply_address, wait_until, within_timeout,
};
use rockbot_tool_rpc::RemoteTool;
use rockbot_tools::{Tool, ToolCall, ToolContext, ToolUpdate};
use serde_json::json;

use crate::fleet::{Fleet, registration};

#[tokio::test]
async fn result_contains_its_handler_and_stages() {
    let fleet = Fleet::start().await;
    let result = fleet.call("echo", r#"{"text": "hello"}"#).await.expect("a result");
    assert_eq!(result.to_text(), "hello");
    assert!(result.ran_on.expect("a handler").starts_with("handler/"));
    assert!(result.stages.is_some());
    assert_eq!(fleet.handler.stats().ok(), 1);
}

#[tokio::test]
async fn tool_error_is_a_result() {
    let fleet = Fleet::start().await;
    let result = fleet.call("tool_error", "{}").await.expect("a result");
    assert!(result.is_error);
    assert_eq!(fleet.handler.stats().tool_errors(), 1);
}

#[tokio::test]
async fn failed_tool_hides_cause_from_model() {
    let fleet = Fleet::start().await;
    let failure = fleet.call("fail", "{}").await.expect_err("a failure");
    assert_eq!(failure.code(), ToolErrorCode::ExecutionFailed);
    assert_eq!(failure.executed(), Executed::Yes);
    assert_eq!(failure.model_text(), "(tool failed: the disk is full)");
    assert!(failure.stages().is_some());
}

#[tokio::test]
async fn progress_partial_results_and_details_cross_the_bus() {
    let fleet = Fleet::start().await;
    let updates = Arc::new(Mutex::new(Vec::new()));
    let (sink, events) = (updates.clone(), fleet.events.clone());
    let mut context = fleet.context("progress");
    context.updates = Some(Arc::new(move |update| {
        let is_last = matches!(update, ToolUpdate::Partial(_));
        sink.lock().unwrap().push(match update {
            ToolUpdate::Progress(text) => format!("progress: {text}"),
            ToolUpdate::Partial(result) => format!("partial: {}", result.to_text()),
        });
        if is_last {
            events.progress_received.notify_one();
        }
    }));
    let call = ToolCall { context, arguments: "{}".into() };
    let result = within_timeout("the call ends", fleet.agent.execute(call)).await;
    assert_eq!(result.expect("a result").details, Some(json!({"steps": 3})));
    let expected = ["progress: step 1", "progress: step 2", "progress: step 3", "partial: half"];
    assert_eq!(*updates.lock().unwrap(), expected);
}

#[tokio::test]
async fn cancelled_call_stops_its_tool_and_reports_the_run() {
    let fleet = Arc::new(Fleet::start().await);
    let context = fleet.context("hang");
    let cancellation = context.cancellation.clone();
    let caller = fleet.clone();
    let call = tokio::spawn(async move {
        caller.agent.execute(ToolCall { context, arguments: "{}".into() }).await
    });
    within_timeout("the tool starts", fleet.events.started.notified()).await;
    cancellation.cancel();
    let failure =
        within_timeout("the call ends", call).await.expect("no panic").expect_err("cancelled");
    assert_eq!(failure.code(), ToolErrorCode::Cancelled);
    assert_eq!(failure.executed(), Executed::Yes);
    wait_until("the tool is dropped", || fleet.events.dropped.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn dropped_call_stops_its_tool() {
    let fleet = Arc::new(Fleet::start().await);
    let caller = fleet.clone();
    let call = tokio::spawn(async move { caller.call("hang", "{}").await });
    within_timeout("the tool starts", fleet.events.started.notified()).await;
    call.abort();
    wait_until("the tool is dropped", || fleet.events.dropped.load(Ordering::SeqCst) == 1).await;
    wait_until("no call is running", || fleet.handler.in_progress() == 0).await;
}

#[tokio::test]
async fn handed_over_call_is_not_cancelled() {
    let fleet = Arc::new(Fleet::start().await);
    let (caller, context) = (fleet.clone(), fleet.context("hang"));
    let handover = context.handover.clone();
    let call = tokio::spawn(async move {
        caller.agent.execute(ToolCall { context, arguments: "{}".into() }).await
    });
    within_timeout("the tool starts", fleet.events.started.notified()).await;
    handover.cancel();
    call.abort();
    assert!(within_timeout("the call ends", call).await.expect_err("aborted").is_cancelled());
    // A cancel would arrive before the reply of a later call.
    fleet.call("echo", "{}").await.expect("a reply");
    assert_eq!(fleet.handler.in_progress(), 1);
    assert_eq!(fleet.events.dropped.load(Ordering::SeqCst), 0);
}

/// A process that was suspended beyond the deadline may have a successor that waits for the call.
#[tokio::test(start_paused = true)]
async fn call_is_not_cancelled_after_its_deadline() {
    let bus = BusFixture::memory();
    let mut cancels = bus.consume(QueueSpec::work(&tool_cancel()), 1).await;
    let mut requests = bus.consume(QueueSpec::work(&tool_invoke()), 2).await;
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("assistant", "one")));
    let tool = Arc::new(RemoteTool::new(registration("echo"), requester, tool_invoke()));
    let call = |id: &str, budget: u64| {
        let agent = AgentName::new("assistant").expect("a valid name");
        let mut context = ToolContext::new("echo", SessionId::generate(), agent);
        context.tool_call_id = ToolCallId::new(id).expect("a valid id");
        context.deadline = tokio::time::Instant::now() + Duration::from_secs(budget);
        let (cancellation, tool) = (context.cancellation.clone(), tool.clone());
        let call = tokio::spawn(async move { tool.call(json!({}), &context).await });
        (cancellation, call)
    };
    let (late, late_call) = call("late", 10);
    let (early, early_call) = call("early", 60);
    for _ in 0..2 {
        next_delivery(&mut requests).await;
    }
    tokio::time::advance(Duration::from_secs(11)).await;
    late.cancel();
    late_call.abort();
    early.cancel();
    let cancel: ToolCancel =
        next_delivery(&mut cancels).await.envelope().decode(Limits::default()).expect("a cancel");
    assert_eq!(cancel.tool_call_id.as_str(), "early");
    early_call.abort();
}

#[tokio::test]
async fn hung_tool_times_out_as_executed() {
    let fleet = Fleet::start().await;
    let failure =
        fleet.call_within("hang", "{}", Duration::from_millis(200)).await.expect_err("a timeout");
    assert_eq!(failure.code(), ToolErrorCode::Timeout);
    assert_eq!(failure.executed(), Executed::Yes);
    assert!(!failure.is_retryable());
    assert_eq!(failure.model_text(), "(tool failed: timeout)");
    wait_until("the tool is dropped", || fleet.events.dropped.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn drain_finishes_running_calls() {
    let fleet = Fleet::start().await;
    let Fleet { workers, agent, events, requester, .. } = fleet;
    let session = rockbot_contracts::SessionId::generate();
    let mut context =
        rockbot_tools::ToolContext::new("hang", session, requester.address().agent().clone());
    context.deadline = tokio::time::Instant::now() + Duration::from_millis(500);
    let call =
        tokio::spawn(
            async move { agent.execute(ToolCall { context, arguments: "{}".into() }).await },
        );
    within_timeout("the tool starts", events.started.notified()).await;
    assert!(workers.drain(Duration::from_secs(10)).await, "drained in time");
    let failure =
        within_timeout("the call ends", call).await.expect("no panic").expect_err("a timeout");
    assert_eq!(failure.executed(), Executed::Yes);
}

#[tokio::test]
async fn call_of_team_member_has_process_as_source() {
    let bus = BusFixture::memory();
    let mut requests = bus.consume(QueueSpec::work(&tool_invoke()), 1).await;
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("assistant", "one")));
    let tool = RemoteTool::new(registration("echo"), requester, tool_invoke());
    let member = AgentName::new("librarian").expect("a valid name");
    let context = ToolContext::new("echo", SessionId::generate(), member);
    let call = tokio::spawn(async move { tool.call(json!({}), &context).await });
    let request = next_delivery(&mut requests).await;
    assert_eq!(request.envelope().source.as_deref(), Some("assistant"), "the user of the process");
    call.abort();
}

#[tokio::test]
async fn call_waits_for_reply_of_its_own_pool() {
    let pool = HandlerPool::Named(PoolName::new("web").expect("a name"));
    let replies = [
        (None, true),
        (Some("guest"), true),
        (Some("rockbot.tool-handler.web"), true),
        (Some("rockbot.tool-handler.files"), false),
        (Some("rockbot.tool-handler"), false),
    ];
    for (user, expected) in replies {
        let bus = BusFixture::memory();
        let mut requests = bus.consume(QueueSpec::work(&pool.invoke_key()), 1).await;
        let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "one")));
        let stats = requester.stats().clone();
        let tool = RemoteTool::new(registration("echo"), requester, pool.invoke_key());
        let agent = AgentName::new("agent").expect("a name");
        let context = ToolContext::new("echo", SessionId::generate(), agent);
        let call = tokio::spawn(async move { tool.call(json!({}), &context).await });
        let request = next_delivery(&mut requests).await;
        let request_envelope = request.envelope();
        let id = request_envelope.correlation_id.as_deref().expect("a call id").to_owned();
        let reply_to = request_envelope.reply_to.clone().expect("a reply address");
        let send = async |user: Option<&str>, text: &str| {
            let mut reply = Envelope::from_payload(&ToolInvokeResponse {
                tool_call_id: ToolCallId::new(id.as_str()).expect("an id"),
                tool_name: "echo".to_owned(),
                content: text.to_owned(),
                is_error: false,
                blocks: Vec::new(),
                details: None,
                child_loop_id: None,
                elapsed_ms: None,
                stages: None,
            })
            .with_correlation_id(id.as_str());
            reply.user_id = user.map(Into::into);
            bus.remote
                .publish(Publication::mandatory(reply_to.clone(), reply))
                .await
                .expect("published");
        };
        send(user, "first").await;
        if !expected {
            wait_until("the foreign reply is counted", || stats.foreign() == 1).await;
            send(Some("rockbot.tool-handler.web"), "second").await;
        }
        let result = within_timeout("the call ends", call).await.expect("no panic");
        let text = if expected { "first" } else { "second" };
        assert_eq!(result.expect("a result").to_text(), text, "{user:?}");
    }
}
