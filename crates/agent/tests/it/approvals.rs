//! A person decides about a call before it runs.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentClient, AgentDefinition, AgentParts, Approvals, Team, TurnAnswer, TurnEvent,
    TurnOrigin, serve,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{
    AgentName, ApprovalAnswer, ApprovalDecision, ApprovalId, InstanceId, ReplyBody,
};
use rockbot_llm::{ChatModel, ScriptedTurn};
use rockbot_tools::EntryPoint;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use crate::stage::{
    Does, Ear, Probe, Question, Stage, Witness, all_wait, cancel, message, say, start,
};

fn rules(section: Value) -> Arc<Approvals> {
    Approvals::new(serde_json::from_value(section).unwrap()).unwrap()
}

fn ask_about_all() -> Arc<Approvals> {
    rules(json!({"policy": "ask"}))
}

/// A turn that calls `tool` so often, with 1, 2, … as its argument.
fn turn(
    approvals: &Arc<Approvals>,
    tool: &Arc<Probe>,
    times: u64,
) -> (Agent, Arc<Witness>, JoinHandle<TurnAnswer>, Ear) {
    let call = |n| ScriptedTurn::default().call(tool.name(), json!({"n": n}));
    let model = Witness::script((1..=times).map(call).chain([ScriptedTurn::text("Done.")]));
    let stage = Stage { approvals: Some(approvals.clone()), ..Stage::new() };
    let agent = stage.with(tool).agent(&model);
    let (turn, ear) = start(&agent, message("s", "go"));
    (agent, model, turn, ear)
}

fn only(ear: &Ear) -> Question {
    let mut questions = ear.questions();
    assert_eq!(questions.len(), 1);
    questions.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_call_runs_when_the_person_says_yes_and_not_before() {
    let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
    let (_agent, model, turn, ear) = turn(&approvals, &echo, 1);
    all_wait().await;
    let question = only(&ear);
    assert_eq!((question.tool.as_str(), question.arguments.as_str()), ("echo", r#"{"n":1}"#));
    assert_eq!(echo.calls(), 0);
    // The person thinks for longer than the tool may take.
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(approvals.answer(&question.answer("s", ApprovalDecision::Allow)));
    turn.await.unwrap();
    assert_eq!(model.results(), [r#"{"n":1}"#]);
    assert!(echo.contexts.lock().unwrap()[0].remaining() > Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn no_and_silence_are_refusals_that_the_model_reads() {
    for says_no in [true, false] {
        let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
        let began = Instant::now();
        let (_agent, model, turn, ear) = turn(&approvals, &echo, 1);
        all_wait().await;
        let question = only(&ear);
        if says_no {
            assert!(approvals.answer(&question.answer("s", ApprovalDecision::Deny)));
        }
        turn.await.unwrap();
        let reason = if says_no { "the user refused" } else { "nobody approved this call in time" };
        let result = &model.results()[0];
        assert!(result.starts_with("(tool failed: not permitted:") && result.contains(reason));
        assert_eq!((says_no, echo.calls()), (began.elapsed() < Duration::from_secs(119), 0));
        let late = question.answer("s", ApprovalDecision::Allow);
        assert!(!approvals.answer(&late), "late, or given before");
        let executed = ear.events().into_iter().find_map(|event| match event {
            TurnEvent::ToolFinished { executed, .. } => Some(executed),
            _ => None,
        });
        assert_eq!(executed, Some(rockbot_contracts::Executed::No));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_once_and_for_the_call_that_was_shown() {
    let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
    let (_agent, model, turn, ear) = turn(&approvals, &echo, 2);
    all_wait().await;
    let first = only(&ear);
    let yes = first.answer("s", ApprovalDecision::Allow);
    for other in [
        ApprovalAnswer { call_hash: "0".repeat(64), ..yes.clone() },
        ApprovalAnswer { approval_id: ApprovalId::generate(), ..yes.clone() },
        first.answer("another", ApprovalDecision::Allow),
    ] {
        assert!(!approvals.answer(&other), "{other:?}");
    }
    all_wait().await;
    assert_eq!(echo.calls(), 0, "none of them allowed it");
    assert!(approvals.answer(&yes));
    all_wait().await;
    assert_eq!(echo.calls(), 1);
    // The second call has other arguments, so the first answer does not fit it.
    let second = ear.questions().remove(1);
    assert_ne!(second.hash, first.hash);
    let replayed = ApprovalAnswer { approval_id: second.id.clone(), ..yes.clone() };
    assert!(!approvals.answer(&yes) && !approvals.answer(&replayed));
    all_wait().await;
    assert_eq!(echo.calls(), 1);
    assert!(approvals.answer(&second.answer("s", ApprovalDecision::Deny)));
    turn.await.unwrap();
    assert!(model.results()[1].contains("the user refused"), "{:?}", model.results());
}

#[tokio::test(start_paused = true)]
async fn always_is_for_that_tool_in_that_conversation() {
    let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
    let (agent, _, first, ear) = turn(&approvals, &echo, 2);
    all_wait().await;
    assert!(approvals.answer(&only(&ear).answer("s", ApprovalDecision::AllowInSession)));
    first.await.unwrap();
    assert_eq!((echo.calls(), ear.questions().len()), (2, 1));
    let (other, ear) = start(&agent, message("another", "go"));
    all_wait().await;
    assert_eq!(only(&ear).tool, "echo");
    other.abort();
}

#[tokio::test]
async fn the_operators_rules_allow_and_deny_without_a_question() {
    let approvals = rules(json!({"policy": "deny", "rules": [{"tool": "e*", "policy": "allow"}]}));
    let (echo, other) = (Probe::new("echo", Does::Echo), Probe::new("other", Does::Echo));
    let (_agent, _, allowed, _) = turn(&approvals, &echo, 1);
    allowed.await.unwrap();
    let (_agent, model, denied, ear) = turn(&approvals, &other, 1);
    denied.await.unwrap();
    assert_eq!((echo.calls(), other.calls(), ear.questions().len()), (1, 0, 0));
    assert!(model.results()[0].contains("the operator of this agent forbids this call"));
}

#[tokio::test]
async fn a_turn_that_no_person_began_asks_nobody() {
    let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
    let model = Witness::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let stage = Stage { approvals: Some(approvals), ..Stage::new() };
    let agent = stage.with(&echo).agent(&model);
    let ear = Ear::default();
    let origin = TurnOrigin::new(EntryPoint::ScheduledTask);
    agent.turn(origin, message("s", "go"), ear.sink()).await;
    assert!(model.results()[0].contains("nobody is there to ask"), "{:?}", model.results());
    assert_eq!((echo.calls(), ear.questions().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_takes_its_question_back() {
    let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
    let (agent, _, turn, ear) = turn(&approvals, &echo, 1);
    all_wait().await;
    let question = only(&ear);
    agent.message(cancel("s"), Ear::default().sink()).await;
    turn.await.unwrap();
    assert!(!approvals.answer(&question.answer("s", ApprovalDecision::Allow)));
    assert_eq!(echo.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_person_is_asked_what_an_agent_wants_that_works_for_theirs() {
    let approvals = rules(json!({"rules": [{"tool": "echo", "policy": "ask"}]}));
    let echo = Probe::new("echo", Does::Echo);
    let inner = Witness::script([
        ScriptedTurn::default().call("echo", json!({"n": 3})),
        ScriptedTurn::text("Echoed."),
    ]);
    let model = Witness::script([
        ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
        ScriptedTurn::text("Done."),
    ]);
    let stage = Stage { approvals: Some(approvals.clone()), ..Stage::new() }.with(&echo);
    let registry = stage.registry.clone();
    let hire = {
        let (registry, inner, approvals) = (registry.clone(), inner.clone(), approvals.clone());
        Arc::new(move |definition: AgentDefinition| {
            let model: Arc<dyn ChatModel> = inner.clone();
            let parts = AgentParts::new(definition, model, registry.clone());
            AgentParts { approvals: Some(approvals.clone()), ..parts }
        })
    };
    let team = Team::new(AgentName::new("tester").unwrap(), registry, hire);
    team.follow(vec![AgentDefinition::new(AgentName::new("b").unwrap(), "Be of use.")]);
    let agent = stage.agent(&model);
    let (turn, ear) = start(&agent, message("s", "go"));
    all_wait().await;
    assert!(approvals.answer(&only(&ear).answer("s", ApprovalDecision::Allow)));
    turn.await.unwrap();
    assert_eq!((echo.calls(), model.results()), (1, vec!["Echoed.".to_owned()]));
}

#[tokio::test]
async fn question_and_answer_cross_the_bus() {
    let (approvals, echo) = (ask_about_all(), Probe::new("echo", Does::Echo));
    let model = Witness::script([
        ScriptedTurn::default().call("echo", json!({"n": 1})),
        ScriptedTurn::text("Done."),
    ]);
    let stage = Stage { approvals: Some(approvals), ..Stage::new() };
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let _door = serve(stage.with(&echo).agent(&model), bus.clone(), 16).await.unwrap();
    let client = AgentClient::connect(bus, &InstanceId::new("proxy").unwrap()).await.unwrap();
    let tester = AgentName::new("tester").unwrap();
    let mut replies = client.say(&tester, &message("s", "go")).await.unwrap();
    let mut asked = 0;
    while let Some(reply) = replies.next().await {
        let reply = reply.unwrap();
        let ReplyBody::ApprovalAsked { approval_id, call_hash, expires_in_ms, .. } = reply.body
        else {
            continue;
        };
        asked += 1;
        assert_eq!(expires_in_ms, 120_000);
        let (session_id, decision) = (reply.session_id, ApprovalDecision::Allow);
        let answer = ApprovalAnswer { session_id, approval_id, call_hash, decision };
        client.approve(&reply.agent, &answer).await.unwrap();
    }
    assert_eq!((asked, echo.calls()), (1, 1));
}

#[tokio::test]
async fn without_rules_nobody_is_asked() {
    assert!(Approvals::new(rockbot_tools::ApprovalSection::default()).is_none());
    let echo = Probe::new("echo", Does::Echo);
    let model = Witness::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    say(&Stage::new().with(&echo).agent(&model), "go").await;
    assert_eq!(echo.calls(), 1);
}
