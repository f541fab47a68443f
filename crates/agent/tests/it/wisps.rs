//! Plans of tool calls that a model writes: steps, templates, failures, and model requests of steps.

use std::sync::Arc;

use rockbot_agent::internal_tools::InternalTools;
use rockbot_contracts::{MessageId, user::TurnOutcome};
use rockbot_llm::{ScriptedFailure, ScriptedTurn};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    harness::{
        AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, cancel, message, send,
        spawn_send,
    },
    stored_harness::{CrashingLog, Storage, resume, send_as, session},
};

const WISPS: &str = "spawn_wisps";
/// Start of the message in the model request of a step.
const STEP: &str = "You do one step of a plan";

fn fixture() -> AgentFixture {
    let mut fixture = AgentFixture::new();
    fixture.definition.internal = InternalTools { wisps: true, ..InternalTools::default() };
    fixture
}

#[expect(clippy::needless_pass_by_value, reason = "tests write JSON in place")]
fn direct(id: &str, tool: &str, params: Value) -> Value {
    json!({"id": id, "mode": "Direct", "tool": tool, "params": params})
}

fn skipping(step: Value, to: &str) -> Value {
    let mut step = step;
    step["on_failure"] = json!({"action": "skip_to", "skip_to": to});
    step
}

#[expect(clippy::needless_pass_by_value, reason = "tests write JSON in place")]
fn plan(steps: Vec<Value>) -> Value {
    json!({"description": "A plan", "steps": steps})
}

/// Returns a model that runs these plans, and plays `steps` for the model requests of steps.
fn model(plans: &Value, steps: Vec<ScriptedTurn>) -> Arc<RecordingModel> {
    let mut script = vec![
        ScriptedTurn {
            when: Some("go".to_owned()),
            ..ScriptedTurn::default().call(WISPS, json!({"definitions": plans}))
        },
        ScriptedTurn::text("Done."),
    ];
    let mut steps = steps.into_iter();
    let first = steps.next().map(|turn| ScriptedTurn { when: Some(STEP.to_owned()), ..turn });
    // These come first: the request of a step may contain the user's text, and match "go".
    let step_turns: Vec<_> = first.into_iter().chain(steps).collect();
    script.splice(0..0, step_turns);
    RecordingModel::script(script)
}

/// Returns the last tool result that reports on plans.
fn result(model: &RecordingModel) -> String {
    let requests = model.requests.lock().unwrap();
    let messages = requests.iter().flat_map(|request| &request.messages);
    let texts: Vec<_> = messages
        .filter_map(|message| match message {
            rockbot_llm::ChatMessage::Tool { content, .. } => Some(content.clone()),
            _ => None,
        })
        .collect();
    let is_result =
        |text: &String| text.contains("wisp(s) completed") || text.contains("definition");
    texts.into_iter().rfind(is_result).unwrap()
}

#[tokio::test]
async fn ten_plans_run_at_once_and_eleven_are_refused() {
    let gate = Arc::new(Semaphore::new(0));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let plans = |count: usize| json!(vec![plan(vec![direct("a", "work", json!({}))]); count]);
    let ten = model(&plans(10), Vec::new());
    let (turn, _) = spawn_send(&fixture().with(&work).agent(&ten), message("s", "go"));
    for _ in 0..10 {
        work.wait_for_call().await;
    }
    gate.add_permits(10);
    let answer = turn.await.unwrap();
    assert_eq!(answer.text, "Done.");
    let text = result(&ten);
    assert!(text.starts_with("10 wisp(s) completed (10 succeeded, 0 failed, "), "{text}");
    assert_eq!(text.matches("  Output: work is done").count(), 10, "{text}");
    assert_eq!(answer.usage.unwrap().turn.tool_calls, 11);

    let eleven = model(&plans(11), Vec::new());
    send(&fixture().with(&work).agent(&eleven), "go").await;
    assert!(result(&eleven).contains("11 definitions; send 1 to 10"), "{}", result(&eleven));
    assert_eq!(work.calls(), 10);
}

#[tokio::test]
async fn template_value_stays_text() {
    let hostile = r#""}},{{steps.a.result}},{"n": 1}"#;
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let steps = vec![
        direct("a", "echo", json!({"text": hostile.replace("{{steps.a.result}}", "{{x}}")})),
        direct("b", "echo", json!({"again": "{{steps.a.result}}", "list": ["{{steps.a.key}}"]})),
    ];
    let model = model(&json!([plan(steps)]), Vec::new());
    send(&fixture().with(&echo).agent(&model), "go").await;
    let text = result(&model);
    let output = text.lines().find_map(|line| line.trim().strip_prefix("Output: ")).unwrap();
    let output: Value =
        serde_json::from_str(output).unwrap_or_else(|error| panic!("{error}: {text}"));
    let first = json!({"text": hostile.replace("{{steps.a.result}}", "{{x}}")});
    assert_eq!(output["again"], first.to_string());
    assert_eq!(output["list"], json!([""]), "nothing is stored without working memory");
}

#[tokio::test]
async fn failed_step_ends_or_skips() {
    let tools = [ProbeTool::new("fails", Behavior::Fail), ProbeTool::new("echo", Behavior::Echo)];
    let plans = json!([
        plan(vec![direct("a", "fails", json!({})), direct("b", "echo", json!({}))]),
        plan(vec![
            skipping(direct("a", "fails", json!({})), "c"),
            direct("b", "echo", json!({"n": 1})),
            direct("c", "echo", json!({"n": 2})),
        ]),
        plan(vec![direct("a", "gone", json!({}))]),
        plan(vec![direct("a", "echo", json!({"n": "x"}))]),
        plan(vec![direct("a", WISPS, json!({}))]),
        plan(vec![
            skipping(direct("a", "fails", json!({})), "b"),
            direct("b", "echo", json!({"x": "{{steps.a.result}}"})),
        ]),
    ]);
    let model = model(&plans, Vec::new());
    let fixture = tools.iter().fold(fixture(), AgentFixture::with);
    send(&fixture.agent(&model), "go").await;
    let text = result(&model);
    assert!(text.starts_with("PARTIAL FAILURE: 5 of 6 wisps failed."), "{text}");
    for part in [
        "Error (External): the disk is full",
        "Output: {\"n\":2}",
        "Error (Structural): tool not found: gone",
        "Error (Structural): invalid arguments",
        "Error (Structural): spawn_wisps cannot be called in a plan",
        "Error (Data): step a has no result",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert_eq!(tools[1].calls(), 1, "only the step after the skipped one ran");
}

#[tokio::test]
async fn model_step_has_only_the_listed_tools() {
    let tools = [ProbeTool::new("echo", Behavior::Echo), ProbeTool::new("other", Behavior::Echo)];
    let steps = vec![
        direct("a", "echo", json!({"n": 1})),
        json!({"id": "b", "mode": "Llm", "prompt": "Repeat {{steps.a.result}}"}),
    ];
    let plans = json!([{"description": "Asks", "tools": ["echo", WISPS], "steps": steps}]);
    let calls = ScriptedTurn::default().call("echo", json!({"n": 2})).call("other", json!({}));
    let model = model(&plans, vec![calls, ScriptedTurn::text("It says 1.")]);
    let fixture = tools.iter().fold(fixture(), AgentFixture::with);
    let answer = send(&fixture.agent(&model), "go").await;
    let text = result(&model);
    assert!(text.contains("  Output: It says 1."), "{text}");
    assert_eq!((tools[0].calls(), tools[1].calls()), (2, 0));
    let requests = model.requests.lock().unwrap();
    let step =
        requests.iter().find(|request| format!("{:?}", request.messages).contains(STEP)).unwrap();
    let offered: Vec<_> = step.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offered, ["echo"]);
    let read = format!("{:?}", step.messages);
    assert!(read.contains(r#"Repeat {\"n\":1}"#), "{read}");
    let usage = answer.usage.unwrap();
    assert_eq!((usage.turn.model_calls, usage.children.model_calls), (4, 2));
}

#[tokio::test]
async fn failed_model_step_is_a_judgment_error() {
    let plans = json!([plan(vec![json!({"id": "a", "mode": "Llm", "prompt": "Think."})])]);
    let model = model(&plans, vec![ScriptedTurn::failing(ScriptedFailure::Rejected)]);
    send(&fixture().agent(&model), "go").await;
    let text = result(&model);
    assert!(text.starts_with("ALL 1 WISPS FAILED."), "{text}");
    assert!(text.contains("  Error (Judgment): The model failed"), "{text}");
}

#[tokio::test]
async fn cancel_ends_running_plans() {
    let slow = ProbeTool::new("slow", Behavior::Hang);
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let steps = vec![skipping(direct("a", "slow", json!({})), "b"), direct("b", "echo", json!({}))];
    let model = model(&json!([plan(steps)]), Vec::new());
    let agent = fixture().with(&slow).with(&echo).agent(&model);
    let (turn, _) = spawn_send(&agent, message("s", "go"));
    slow.wait_for_call().await;
    agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert!(slow.token().is_cancelled());
    assert_eq!((echo.calls(), model.request_count()), (0, 1));
}

#[tokio::test]
async fn continued_plan_repeats_its_calls_and_is_deleted_with_conversation() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let stalled = ProbeTool::new("work", Behavior::Gated(gate));
    let working = ProbeTool::new("work", Behavior::Echo);
    let steps = vec![
        json!({"id": "a", "mode": "Llm", "prompt": "Think."}),
        direct("b", "work", json!({"n": 1})),
    ];
    let plans = json!([plan(steps)]);
    let script = || model(&plans, vec![ScriptedTurn::text("A thought.")]);
    let (first, second) = (script(), script());
    // Message and response with the plans, and message and answer of the model step.
    let log = CrashingLog::new(&storage, 4);
    let conversations = Some(storage.conversations_on(log));
    let agent = AgentFixture { conversations, ..fixture() }.with(&stalled).agent(&first);
    let running = tokio::spawn({
        let agent = agent.clone();
        async move { drop(send_as(&agent, &MessageId::generate(), "go").await) }
    });
    stalled.wait_for_call().await;
    running.abort();
    drop(agent);
    let agent = storage.agent(fixture().with(&working), &second);
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!(answer.text, "Done.");
    assert_eq!(stalled.ids(), working.ids(), "the call is made again under its id");
    let requests = second.requests.lock().unwrap().len();
    assert_eq!(requests, 1, "the answer of the model step is recorded");
    assert!(result(&second).contains("1 succeeded"), "{}", result(&second));
    assert!(agent.delete_conversation(&session()).await.unwrap());
    let prefix = rockbot_store::Prefix::new(["conversation"]).unwrap();
    let left = storage.stores.log.logs(&prefix, None, 100).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn step_beyond_the_time_limit_may_have_run() {
    let timeout = Some(std::time::Duration::from_secs(600));
    for (behavior, expected) in [
        (Behavior::Hang, "timeout; the call ran, and may have done a part of its work"),
        (Behavior::IgnoreCancel, "this step may have run, and its outcome is unknown"),
    ] {
        let work = ProbeTool::with_timeout("work", behavior, timeout);
        let echo = ProbeTool::new("echo", Behavior::Echo);
        let steps =
            vec![skipping(direct("a", "work", json!({})), "b"), direct("b", "echo", json!({}))];
        let call = json!({"definitions": [plan(steps)], "timeout_minutes": 1});
        let model = RecordingModel::script([
            ScriptedTurn::default().call(WISPS, call),
            ScriptedTurn::text("Done."),
        ]);
        let answer = send(&fixture().with(&work).with(&echo).agent(&model), "go").await;
        assert_eq!(answer.text, "Done.");
        let text = result(&model);
        assert!(text.contains(expected), "{text}");
        assert_eq!((work.calls(), echo.calls()), (1, 0), "the time for other steps is over");
    }
}
