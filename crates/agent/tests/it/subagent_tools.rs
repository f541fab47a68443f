//! Sub-agents that a definition describes as tools.

use std::{path::Path, sync::Arc, time::Duration};

use rockbot_agent::{AgentDefinition, TurnEvent};
use rockbot_contracts::{MessageId, user::TurnOutcome};
use rockbot_llm::{ChatMessage, ChatRequest, ScriptedFailure, ScriptedTurn};
use rockbot_store::Prefix;
use rockbot_tools::BudgetLimits;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    harness::{
        AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, cancel, message, send,
        spawn_send,
    },
    stored_harness::{CrashingLog, Storage, resume, send_as, session},
};

const REVIEWER: &str = "subagent__reviewer";
const HEAD: &str = "name = 'tester'\n[[subagents.tool]]\nname = 'reviewer'\ndescription = \
    'Reviews a text.'\nprompt = 'You review.'\n";

fn fixture(more: &str) -> AgentFixture {
    let text = format!("+++\n{HEAD}{more}\n+++\nBe brief.");
    let definition = AgentDefinition::parse(Path::new("x.md"), &text).unwrap();
    AgentFixture { definition, ..AgentFixture::new() }
}

fn review() -> ScriptedTurn {
    ScriptedTurn::default().call(REVIEWER, json!({"task": "Review it."}))
}

/// Returns a model that calls the reviewer, plays `inner` in its turn, and answers.
fn model(inner: Vec<ScriptedTurn>) -> Arc<RecordingModel> {
    let mut turns = inner;
    if let Some(first) = turns.first_mut() {
        first.when = Some("Review it.".to_owned());
    }
    turns.push(ScriptedTurn { when: Some("go".to_owned()), ..review() });
    turns.push(ScriptedTurn::text("Done."));
    RecordingModel::script(turns)
}

fn requests(model: &RecordingModel) -> Vec<ChatRequest> {
    model.requests.lock().unwrap().clone()
}

fn system(request: &ChatRequest) -> String {
    let ChatMessage::System(text) = &request.messages[0] else { panic!("{request:?}") };
    text.clone()
}

fn offered(request: &ChatRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test]
async fn call_runs_a_turn_with_its_own_prompt_model_and_tools() {
    let tools = [ProbeTool::new("echo", Behavior::Echo), ProbeTool::new("other", Behavior::Echo)];
    let fixture = fixture("model = 'small'\ntools = {allow = ['echo']}\n[tools]\ndeny = ['x']");
    let fixture = tools.iter().fold(fixture, AgentFixture::with);
    let inner = ScriptedTurn::default()
        .call("echo", json!({}))
        .call("other", json!({}))
        .call(REVIEWER, json!({"task": "Deeper."}));
    let model = model(vec![inner, ScriptedTurn::text("It is fine.")]);
    let events = EventLog::default();
    let answer = fixture.agent(&model).send(message("s", "go"), events.sink()).await;
    assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "Done."));
    let requests = requests(&model);
    assert_eq!(requests.len(), 4);
    let (outer, inner) = (&requests[0], &requests[1]);
    assert!(system(outer).starts_with("Be brief.") && offered(outer).contains(&REVIEWER));
    assert!(system(inner).starts_with("You review.") && !system(inner).contains("Be brief."));
    assert_eq!((inner.model.as_deref(), outer.model.as_deref()), (Some("small"), None));
    assert_eq!(offered(inner), ["echo"]);
    let read = format!("{:?}", inner.messages);
    assert!(read.contains("Review it.") && !read.contains("\"go\""), "{read}");
    assert_eq!((tools[0].calls(), tools[1].calls()), (1, 0), "not listed, and not nested");
    assert_eq!(model.tool_results(), ["It is fine."]);
    let usage = answer.usage.unwrap();
    assert_eq!((usage.turn.model_calls, usage.children.model_calls), (4, 2));
    let progress = events.events().into_iter().any(
        |event| matches!(event, TurnEvent::ToolProgressed { text, .. } if text == "reviewer calls echo"),
    );
    assert!(progress, "{:?}", events.events());
}

#[tokio::test]
async fn failures_and_limits_are_results_of_the_call() {
    let failed = model(vec![ScriptedTurn::failing(ScriptedFailure::Rejected)]);
    send(&fixture("").agent(&failed), "go").await;
    assert!(failed.tool_results()[0].contains("The model failed"), "{:?}", failed.tool_results());

    let poor = model(Vec::new());
    let mut fixture = fixture("");
    fixture.limits.budget = BudgetLimits { delegations: 0, ..BudgetLimits::default() };
    send(&fixture.agent(&poor), "go").await;
    assert!(poor.tool_results()[0].contains("budget"), "{:?}", poor.tool_results());
}

#[tokio::test(start_paused = true)]
async fn time_limit_and_cancel_end_the_turn() {
    let slow = ProbeTool::new("slow", Behavior::Hang);
    let inner = || vec![ScriptedTurn::default().call("slow", json!({}))];
    let late = model(inner());
    let started = tokio::time::Instant::now();
    send(&fixture("timeout = '30s'").with(&slow).agent(&late), "go").await;
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    let result = late.tool_results().remove(0);
    assert!(result.contains("exceeded its time limit of"), "{result}");

    let slow = ProbeTool::new("slow", Behavior::Hang);
    let cancelled = model(inner());
    let agent = fixture("").with(&slow).agent(&cancelled);
    let (turn, _) = spawn_send(&agent, message("s", "go"));
    slow.wait_for_call().await;
    agent.send(cancel("s"), EventLog::default().sink()).await;
    let answer = turn.await.unwrap();
    assert_eq!(answer.outcome, TurnOutcome::Cancelled);
    assert!(slow.token().is_cancelled());
    assert_eq!(answer.usage.unwrap().children.model_calls, 1, "its spending counts");
}

#[tokio::test]
async fn continued_call_makes_the_same_calls_and_is_deleted_with_the_conversation() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let stalled = ProbeTool::new("work", Behavior::Gated(gate));
    let working = ProbeTool::new("work", Behavior::Echo);
    let script = || {
        let inner = ScriptedTurn::default().call("work", json!({}));
        model(vec![inner, ScriptedTurn::text("It is fine.")])
    };
    let (first, second) = (script(), script());
    // Message and response of the outer turn, and of the inner one.
    let log = CrashingLog::new(&storage, 4);
    let conversations = Some(storage.conversations_on(log));
    let agent = AgentFixture { conversations, ..fixture("") }.with(&stalled).agent(&first);
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { drop(send_as(&agent, &MessageId::generate(), "go").await) }
    });
    stalled.wait_for_call().await;
    running.abort();
    drop(agent);
    let agent = storage.agent(fixture("").with(&working), &second);
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!(answer.text, "Done.");
    assert_eq!(stalled.ids(), working.ids(), "the call is made again under its id");
    assert!(second.tool_results().contains(&"It is fine.".to_owned()));
    assert!(agent.delete_conversation(&session()).await.unwrap());
    let prefix = Prefix::new(["conversation"]).unwrap();
    let left = storage.stores.log.logs(&prefix, None, 100).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn plan_of_a_sub_agent_has_no_further_tools() {
    let bash = ProbeTool::new("bash", Behavior::Echo);
    let mut fixture = fixture("tools = {deny = ['bash']}\n[internal]\nwisps = true").with(&bash);
    fixture.definition.max_iterations = 20;
    let step = json!({"id": "a", "mode": "Llm", "prompt": "Do it."});
    let plan = json!({"description": "A plan", "tools": ["bash"], "steps": [step]});
    let plans = ScriptedTurn::default().call("spawn_wisps", json!({"definitions": [plan]}));
    let asked = ScriptedTurn {
        when: Some("You do one step of a plan".to_owned()),
        ..ScriptedTurn::default().call("bash", json!({}))
    };
    let model = RecordingModel::script([
        asked,
        ScriptedTurn::text("I may not."),
        ScriptedTurn { when: Some("Review it.".to_owned()), ..plans },
        ScriptedTurn::text("It is fine."),
        ScriptedTurn { when: Some("go".to_owned()), ..review() },
        ScriptedTurn::text("Done."),
    ]);
    let answer = send(&fixture.agent(&model), "go").await;
    assert_eq!(answer.text, "Done.");
    assert_eq!((bash.calls(), answer.usage.unwrap().children.model_calls), (0, 4));
}
