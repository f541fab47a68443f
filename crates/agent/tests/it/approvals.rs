//! User approval of tool calls.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentClient, AgentDefinition, AgentParts, Approvals, Team, TurnAnswer, TurnEvent,
    TurnOrigin, serve,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{
    AgentName, ApprovalAnswer, ApprovalDecision, ApprovalId, ApprovalOutcome, InstanceId, ReplyBody,
};
use rockbot_llm::{ChatModel, ScriptedTurn};
use rockbot_tools::EntryPoint;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use crate::harness::{
    AgentFixture, ApprovalRequest, Behavior, EventLog, ProbeTool, RecordingModel, cancel, message,
    register_members, send, settle, spawn_send,
};

fn rules(section: Value) -> Arc<Approvals> {
    Approvals::new(serde_json::from_value(section).unwrap()).unwrap()
}

fn ask_for_all() -> Arc<Approvals> {
    rules(json!({"policy": "ask"}))
}

/// Starts a turn that calls `tool` `times` times, with the arguments 1, 2, ….
fn turn(
    approvals: &Arc<Approvals>,
    tool: &Arc<ProbeTool>,
    times: u64,
) -> (Agent, Arc<RecordingModel>, JoinHandle<TurnAnswer>, EventLog) {
    let call = |n| ScriptedTurn::default().call(tool.name(), json!({"n": n}));
    let model = RecordingModel::script((1..=times).map(call).chain([ScriptedTurn::text("Done.")]));
    let fixture = AgentFixture { approvals: Some(approvals.clone()), ..AgentFixture::new() };
    let agent = fixture.with(tool).agent(&model);
    let (turn, events) = spawn_send(&agent, message("s", "go"));
    (agent, model, turn, events)
}

fn only(events: &EventLog) -> ApprovalRequest {
    let mut requests = events.approval_requests();
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

#[tokio::test(start_paused = true)]
async fn call_runs_only_after_approval() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let (_agent, model, turn, events) = turn(&approvals, &echo, 1);
    settle().await;
    let request = only(&events);
    assert_eq!((request.tool.as_str(), request.arguments.as_str()), ("echo", r#"{"n":1}"#));
    assert_eq!(echo.calls(), 0);
    // Waiting for the user may exceed the timeout of the tool.
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(approvals.answer(&request.answer("s", ApprovalDecision::Allow)));
    turn.await.unwrap();
    assert_eq!(model.tool_results(), [r#"{"n":1}"#]);
    assert!(echo.contexts.lock().unwrap()[0].remaining() > Duration::from_secs(50));
    let elapsed = events.events().into_iter().find_map(|event| match event {
        TurnEvent::ToolFinished { elapsed, .. } => Some(elapsed),
        _ => None,
    });
    assert_eq!(elapsed, Some(Duration::ZERO), "the user's time is not the call's");
}

#[tokio::test(start_paused = true)]
async fn denied_or_expired_request_returns_not_permitted() {
    for denies in [true, false] {
        let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
        let started = Instant::now();
        let (_agent, model, turn, events) = turn(&approvals, &echo, 1);
        settle().await;
        let request = only(&events);
        if denies {
            assert!(approvals.answer(&request.answer("s", ApprovalDecision::Deny)));
        }
        turn.await.unwrap();
        let reason = if denies { "the user denied" } else { "not approved in time" };
        let result = &model.tool_results()[0];
        assert!(result.starts_with("(tool failed: not permitted:") && result.contains(reason));
        assert_eq!((denies, echo.calls()), (started.elapsed() < Duration::from_secs(119), 0));
        let late = request.answer("s", ApprovalDecision::Allow);
        assert!(!approvals.answer(&late), "expired or closed");
        let executed = events.events().into_iter().find_map(|event| match event {
            TurnEvent::ToolFinished { executed, .. } => Some(executed),
            _ => None,
        });
        assert_eq!(executed, Some(rockbot_contracts::Executed::No));
    }
}

#[tokio::test(start_paused = true)]
async fn response_counts_once_and_for_its_call_only() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let (_agent, model, turn, events) = turn(&approvals, &echo, 2);
    settle().await;
    let first = only(&events);
    let yes = first.answer("s", ApprovalDecision::Allow);
    for other in [
        ApprovalAnswer { call_hash: "0".repeat(64), ..yes.clone() },
        ApprovalAnswer { approval_id: ApprovalId::generate(), ..yes.clone() },
        first.answer("another", ApprovalDecision::Allow),
    ] {
        assert!(!approvals.answer(&other), "{other:?}");
    }
    settle().await;
    assert_eq!(echo.calls(), 0, "no mismatched response allows it");
    assert!(approvals.answer(&yes));
    settle().await;
    assert_eq!(echo.calls(), 1);
    // The second call has other arguments, so the first response does not match it.
    let second = events.approval_requests().remove(1);
    assert_ne!(second.hash, first.hash);
    let replayed = ApprovalAnswer { approval_id: second.id.clone(), ..yes.clone() };
    assert!(!approvals.answer(&yes) && !approvals.answer(&replayed));
    settle().await;
    assert_eq!(echo.calls(), 1);
    assert!(approvals.answer(&second.answer("s", ApprovalDecision::Deny)));
    turn.await.unwrap();
    assert!(model.tool_results()[1].contains("the user denied"), "{:?}", model.tool_results());
}

#[tokio::test(start_paused = true)]
async fn reason_of_a_denial_reaches_the_model() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let (_agent, model, turn, events) = turn(&approvals, &echo, 1);
    settle().await;
    let request = only(&events);
    let answer = request.answer("s", ApprovalDecision::Deny);
    let reason = Some(" Ask Ada first. ".to_owned());
    assert!(approvals.answer(&ApprovalAnswer { reason, ..answer }));
    turn.await.unwrap();
    let results = model.tool_results();
    assert!(results[0].contains("Their reason: Ask Ada first."), "{results:?}");
    assert_eq!(closed(&events), [(request.id, ApprovalOutcome::Deny)]);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_request_is_reported() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let (_agent, _, expired, events) = turn(&approvals, &echo, 1);
    settle().await;
    assert!(closed(&events).is_empty());
    tokio::time::advance(Duration::from_secs(121)).await;
    expired.await.unwrap();
    assert_eq!(closed(&events), [(only(&events).id, ApprovalOutcome::Expired)]);
    let (agent, _, cancelled, events) = turn(&approvals, &echo, 1);
    settle().await;
    agent.send(cancel("s"), EventLog::default().sink()).await;
    cancelled.await.unwrap();
    assert_eq!(closed(&events), [(only(&events).id, ApprovalOutcome::Cancelled)]);
}

#[tokio::test(start_paused = true)]
async fn request_names_the_rule_and_the_hints() {
    let approvals = rules(json!({"rules": [
        {"tool": "other", "policy": "deny"}, {"tool": "e*", "destructive": true, "policy": "ask"}]}));
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let (_agent, _, turn, events) = turn(&approvals, &echo, 1);
    settle().await;
    let asked = events.events().into_iter().find_map(|event| match event {
        TurnEvent::ApprovalAsked { rule, hints, .. } => Some((rule, hints)),
        _ => None,
    });
    let (rule, hints) = asked.unwrap();
    assert_eq!(rule, "rule 2: tool = \"e*\", destructive = true");
    assert!(hints.destructive);
    turn.abort();
}

/// Returns the reported ends of approval requests.
fn closed(events: &EventLog) -> Vec<(ApprovalId, ApprovalOutcome)> {
    let closed = |event| match event {
        TurnEvent::ApprovalClosed { approval_id, decision } => Some((approval_id, decision)),
        _ => None,
    };
    events.events().into_iter().filter_map(closed).collect()
}

#[tokio::test(start_paused = true)]
async fn session_approval_covers_tool_in_conversation() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let (agent, _, first, events) = turn(&approvals, &echo, 2);
    settle().await;
    assert!(approvals.answer(&only(&events).answer("s", ApprovalDecision::AllowInSession)));
    first.await.unwrap();
    assert_eq!((echo.calls(), events.approval_requests().len()), (2, 1));
    let (other, events) = spawn_send(&agent, message("another", "go"));
    settle().await;
    assert_eq!(only(&events).tool, "echo");
    other.abort();
}

#[tokio::test]
async fn rules_allow_and_deny_without_a_request() {
    let approvals = rules(json!({"policy": "deny", "rules": [{"tool": "e*", "policy": "allow"}]}));
    let (echo, other) =
        (ProbeTool::new("echo", Behavior::Echo), ProbeTool::new("other", Behavior::Echo));
    let (_agent, _, allowed, _) = turn(&approvals, &echo, 1);
    allowed.await.unwrap();
    let (_agent, model, denied, events) = turn(&approvals, &other, 1);
    denied.await.unwrap();
    assert_eq!((echo.calls(), other.calls(), events.approval_requests().len()), (1, 0, 0));
    assert!(model.tool_results()[0].contains("denied by the policy of the operator"));
}

#[tokio::test]
async fn turn_without_user_denies_call() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let model = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let fixture = AgentFixture { approvals: Some(approvals), ..AgentFixture::new() };
    let agent = fixture.with(&echo).agent(&model);
    let events = EventLog::default();
    let origin = TurnOrigin::new(EntryPoint::ScheduledTask);
    agent.run_turn(origin, message("s", "go"), events.sink()).await;
    assert!(
        model.tool_results()[0].contains("no user takes part in this turn"),
        "{:?}",
        model.tool_results()
    );
    assert_eq!((echo.calls(), events.approval_requests().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_closes_its_request() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let (agent, _, turn, events) = turn(&approvals, &echo, 1);
    settle().await;
    let request = only(&events);
    agent.send(cancel("s"), EventLog::default().sink()).await;
    turn.await.unwrap();
    assert!(!approvals.answer(&request.answer("s", ApprovalDecision::Allow)));
    assert_eq!(echo.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn request_of_child_turn_reaches_user() {
    let approvals = rules(json!({"rules": [{"tool": "echo", "policy": "ask"}]}));
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let inner = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({"n": 3})),
        ScriptedTurn::text("Echoed."),
    ]);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    let fixture =
        AgentFixture { approvals: Some(approvals.clone()), ..AgentFixture::new() }.with(&echo);
    let registry = fixture.registry.clone();
    let factory = {
        let (registry, inner, approvals) = (registry.clone(), inner.clone(), approvals.clone());
        Arc::new(move |definition: AgentDefinition| {
            let model: Arc<dyn ChatModel> = inner.clone();
            let parts = AgentParts::new(definition, model, registry.clone());
            AgentParts { approvals: Some(approvals.clone()), ..parts }
        })
    };
    let team = Team::new(AgentName::new("tester").unwrap(), factory);
    team.set_definitions(vec![AgentDefinition::new(AgentName::new("b").unwrap(), "Be of use.")]);
    register_members(&team, &registry);
    let agent = fixture.agent(&model);
    let (turn, events) = spawn_send(&agent, message("s", "go"));
    settle().await;
    assert!(approvals.answer(&only(&events).answer("s", ApprovalDecision::Allow)));
    turn.await.unwrap();
    assert_eq!((echo.calls(), model.tool_results()), (1, vec!["Echoed.".to_owned()]));
}

#[tokio::test]
async fn request_and_response_cross_the_bus() {
    let (approvals, echo) = (ask_for_all(), ProbeTool::new("echo", Behavior::Echo));
    let model = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({"n": 1})),
        ScriptedTurn::text("Done."),
    ]);
    let fixture = AgentFixture { approvals: Some(approvals), ..AgentFixture::new() };
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let _inbox = serve(fixture.with(&echo).agent(&model), bus.clone(), 16).await.unwrap();
    let client = AgentClient::connect(bus, &InstanceId::new("proxy").unwrap()).await.unwrap();
    let tester = AgentName::new("tester").unwrap();
    let mut replies = client.send(&tester, &message("s", "go")).await.unwrap();
    let mut requests = 0;
    while let Some(reply) = replies.next().await {
        let reply = reply.unwrap();
        let ReplyBody::ApprovalAsked { approval_id, call_hash, expires_in_ms, .. } = reply.body
        else {
            continue;
        };
        requests += 1;
        assert_eq!(expires_in_ms, 120_000);
        let (session_id, decision) = (reply.session_id, ApprovalDecision::Allow);
        let reason = None;
        let answer = ApprovalAnswer { session_id, approval_id, call_hash, decision, reason };
        client.answer_approval(&reply.agent, &answer).await.unwrap();
    }
    assert_eq!((requests, echo.calls()), (1, 1));
}

#[tokio::test]
async fn calls_run_without_approval_rules() {
    assert!(Approvals::new(rockbot_tools::ApprovalSection::default()).is_none());
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    send(&AgentFixture::new().with(&echo).agent(&model), "go").await;
    assert_eq!(echo.calls(), 1);
}
