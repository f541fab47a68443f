//! Outcomes of turns.

use std::time::Duration;

use rockbot_agent::TurnEvent;
use rockbot_contracts::{Executed, user::TurnOutcome};
use rockbot_llm::{ChatError, ChatEvent, FinishReason, ScriptedFailure, ScriptedTurn, ToolChoice};
use serde_json::json;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, calls,
    cancel, message, send, spawn_send, text_events,
};

#[tokio::test]
async fn iteration_limit_forces_an_answer() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("This is what I have.").call("echo", json!({})),
    ]);
    let mut fixture = AgentFixture::new().with(&echo);
    fixture.definition.max_iterations = 2;
    let agent = fixture.agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::IterationLimit);
    assert_eq!(answer.text, "This is what I have.");
    let (last, requests) = (model.last_request(), model.request_count());
    assert_eq!((echo.calls(), requests), (2, 3));
    assert_eq!(last.tool_choice, ToolChoice::None);
    assert_eq!(last.tools.len(), 1, "servers require the tools of earlier calls");
    let prompt = format!("{:?}", last.messages[0]);
    assert!(prompt.contains("no tool can be called now"), "{prompt}");
}

#[tokio::test]
async fn calls_after_iteration_limit_are_not_run() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let call = || Answer::Events(calls(&[("a", "echo", "")], FinishReason::ToolCalls));
    let model = RecordingModel::new(CannedModel::new([
        call(),
        call(),
        Answer::Events(text_events("Hello.")),
    ]));
    let mut fixture = AgentFixture::new().with(&echo);
    fixture.definition.max_iterations = 1;
    let agent = fixture.agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::IterationLimit);
    assert!(answer.text.contains("used all the tool calls"), "{}", answer.text);
    assert_eq!(echo.calls(), 1);
    assert_eq!(send(&agent, "still there?").await.text, "Hello.");
}

#[tokio::test]
async fn model_failure_keeps_the_conversation() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::text("Hello."),
        ScriptedTurn::default().when("go").call("echo", json!({})),
        ScriptedTurn::failing(ScriptedFailure::Unauthorized),
    ]);
    let agent = AgentFixture::new().with(&echo).agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("refused the credentials"), "{}", answer.text);
    assert_eq!(echo.calls(), 1);
    assert_eq!(send(&agent, "hello?").await.text, "Hello.");
    assert_eq!(model.tool_results(), ["{}"], "the tool result is kept");
}

#[tokio::test]
async fn interrupted_answer_fails_the_turn() {
    let mut half = ScriptedTurn::text("The answer is").when("go");
    half.fail = Some(ScriptedFailure::Interrupted);
    let model = RecordingModel::script([ScriptedTurn::text("Hello."), half]);
    let agent = AgentFixture::new().agent(&model);
    let events = EventLog::default();
    let answer = agent.send(message("s", "go"), events.sink()).await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("broke before the answer was complete"), "{}", answer.text);
    assert!(
        matches!(&events.events()[0], TurnEvent::TextDelta { text } if text.starts_with("The"))
    );
    assert_eq!(send(&agent, "hello?").await.text, "Hello.");
}

#[tokio::test]
async fn empty_and_truncated_answers_are_reported() {
    let cut =
        vec![ChatEvent::Text("Once upon a".to_owned()), ChatEvent::Finished(FinishReason::Length)];
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(text_events("")),
        Answer::Events(cut),
        Answer::Events(text_events("Hello.")),
    ]));
    let agent = AgentFixture::new().agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("empty answer"), "{}", answer.text);
    let answer = send(&agent, "write a long text").await;
    assert_eq!(answer.outcome, TurnOutcome::Completed);
    assert!(answer.text.starts_with("Once upon a\n\n(The answer was truncated"), "{}", answer.text);
    assert_eq!(send(&agent, "hello?").await.text, "Hello.");
}

fn too_long() -> Answer {
    Answer::Fails(ChatError::ContextOverflow { message: "too many tokens".to_owned() })
}

#[tokio::test]
async fn overflow_trims_the_conversation() {
    let wordy = ProbeTool::new("wordy", Behavior::LongText(50_000));
    let mut answers = vec![
        Answer::Events(calls(&[("a", "wordy", "")], FinishReason::ToolCalls)),
        too_long(),
        too_long(),
        Answer::Events(text_events("Done.")),
    ];
    answers.extend((0..20).map(|_| too_long()));
    let model = RecordingModel::new(CannedModel::new(answers));
    let agent = AgentFixture::new().with(&wordy).agent(&model);
    assert_eq!(send(&agent, "go").await.text, "Done.");
    let result = &model.tool_results()[0];
    assert!(result.len() < 13_000 && result.contains("chars omitted]"), "{}", result.len());
    let answer = send(&agent, "again").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("start a new session"), "{}", answer.text);
    assert!(model.request_count() < 4 + 10, "retries are limited");
    assert!(model.tool_results().is_empty(), "the older exchange was dropped");
}

#[tokio::test(start_paused = true)]
async fn turn_ends_at_its_deadline() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let call = calls(&[("a", "stuck", "")], FinishReason::ToolCalls);
    let model = RecordingModel::new(CannedModel::new([
        Answer::Never,
        Answer::Events(call),
        Answer::Events(text_events("Hello.")),
    ]));
    let mut fixture = AgentFixture::new().with(&stuck);
    fixture.limits.turn_timeout = Duration::from_secs(30);
    let agent = fixture.agent(&model);
    for (text, cause) in [("model", "the model"), ("tool", "its tools")] {
        let started = tokio::time::Instant::now();
        let answer = send(&agent, text).await;
        assert!(answer.text.contains("time limit") && answer.text.contains(cause), "{answer:?}");
        assert_eq!(started.elapsed().as_secs(), 30);
    }
    assert_eq!(send(&agent, "hello?").await.text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn cancel_reaches_tool_and_keeps_history_valid() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let both = [("a", "echo", ""), ("b", "stuck", ""), ("c", "echo", "")];
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(&both, FinishReason::ToolCalls)),
        Answer::Events(text_events("Hello.")),
    ]));
    let mut fixture = AgentFixture::new().with(&stuck).with(&echo);
    fixture.definition.strategy = rockbot_agent::ExecutionStrategy::Sequential;
    let agent = fixture.agent(&model);
    let (turn, _) = spawn_send(&agent, message("s", "go"));
    stuck.wait_for_call().await;
    let cancelled = agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(cancelled.outcome, TurnOutcome::Cancelled);
    assert_eq!(turn.await.unwrap(), cancelled);
    assert!(stuck.token().is_cancelled());
    assert_eq!(send(&agent, "hello?").await.text, "Hello.");
    let cancelled = "(tool failed: cancelled)";
    assert_eq!(model.tool_results(), ["{}", cancelled, cancelled]);
    assert_eq!(echo.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn tool_that_ignores_cancel_is_abandoned() {
    let stuck = ProbeTool::new("stuck", Behavior::IgnoreCancel);
    let call = calls(&[("a", "stuck", "")], FinishReason::ToolCalls);
    let model = RecordingModel::new(CannedModel::new([Answer::Events(call)]));
    let agent = AgentFixture::new().with(&stuck).agent(&model);
    let (turn, events) = spawn_send(&agent, message("s", "go"));
    stuck.wait_for_call().await;
    let started = tokio::time::Instant::now();
    agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    let events = events.events();
    let end = events.last().expect("the end of the call");
    assert!(
        matches!(end, TurnEvent::ToolFinished { tool_name, executed: Executed::Unknown, .. }
            if tool_name == "stuck"),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn cancel_stops_a_slow_model() {
    let model = RecordingModel::new(CannedModel::new([Answer::Never]));
    let agent = AgentFixture::new().agent(&model);
    let (turn, _) = spawn_send(&agent, message("s", "go"));
    crate::harness::settle().await;
    agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    let answer = agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(answer.text, "No turn was running.");
}
