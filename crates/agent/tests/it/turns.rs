//! How turns end.

use std::time::Duration;

use rockbot_agent::TurnEvent;
use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{ChatError, ChatEvent, FinishReason, ScriptedFailure, ScriptedTurn, ToolChoice};
use serde_json::json;

use crate::stage::{
    Answer, Canned, Does, Ear, Probe, Stage, Witness, calls, cancel, message, say, says, start,
};

#[tokio::test]
async fn after_the_last_iteration_the_model_must_answer_without_tools() {
    let echo = Probe::new("echo", Does::Echo);
    let model = Witness::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("This is what I have.").call("echo", json!({})),
    ]);
    let mut stage = Stage::new().with(&echo);
    stage.definition.max_iterations = 2;
    let agent = stage.agent(&model);
    let answer = say(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::IterationLimit);
    assert_eq!(answer.text, "This is what I have.");
    let (last, asked) = (model.last(), model.asked());
    assert_eq!((echo.calls(), asked), (2, 3));
    assert_eq!(last.tool_choice, ToolChoice::None);
    assert_eq!(last.tools.len(), 1, "servers want to know the tools of earlier calls");
    let prompt = format!("{:?}", last.messages[0]);
    assert!(prompt.contains("no tool can be called now"), "{prompt}");
}

#[tokio::test]
async fn a_model_that_calls_tools_after_all_gets_none_and_the_person_is_told() {
    let echo = Probe::new("echo", Does::Echo);
    let call = || Answer::Events(calls(&[("a", "echo", "")], FinishReason::ToolCalls));
    let model = Witness::of(Canned::new([call(), call(), Answer::Events(says("Hello."))]));
    let mut stage = Stage::new().with(&echo);
    stage.definition.max_iterations = 1;
    let agent = stage.agent(&model);
    let answer = say(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::IterationLimit);
    assert!(answer.text.contains("used all the tool calls"), "{}", answer.text);
    assert_eq!(echo.calls(), 1);
    assert_eq!(say(&agent, "still there?").await.text, "Hello.");
}

#[tokio::test]
async fn a_model_that_fails_is_explained_and_the_conversation_goes_on() {
    let echo = Probe::new("echo", Does::Echo);
    let model = Witness::script([
        ScriptedTurn::text("Hello."),
        ScriptedTurn::default().when("go").call("echo", json!({})),
        ScriptedTurn::failing(ScriptedFailure::Unauthorized),
    ]);
    let agent = Stage::new().with(&echo).agent(&model);
    let answer = say(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("refused the credentials"), "{}", answer.text);
    assert_eq!(echo.calls(), 1);
    assert_eq!(say(&agent, "hello?").await.text, "Hello.");
    assert_eq!(model.results(), ["{}"], "what the tool said is not forgotten");
}

#[tokio::test]
async fn half_an_answer_is_not_taken_for_the_whole() {
    let mut half = ScriptedTurn::text("The answer is").when("go");
    half.fail = Some(ScriptedFailure::Interrupted);
    let model = Witness::script([ScriptedTurn::text("Hello."), half]);
    let agent = Stage::new().agent(&model);
    let ear = Ear::default();
    let answer = agent.message(message("s", "go"), ear.sink()).await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("broke before the answer was complete"), "{}", answer.text);
    assert!(matches!(&ear.events()[0], TurnEvent::TextDelta { text } if text.starts_with("The")));
    assert_eq!(say(&agent, "hello?").await.text, "Hello.");
}

#[tokio::test]
async fn an_answer_without_words_or_cut_short_says_so() {
    let cut =
        vec![ChatEvent::Text("Once upon a".to_owned()), ChatEvent::Finished(FinishReason::Length)];
    let model = Witness::of(Canned::new([
        Answer::Events(says("")),
        Answer::Events(cut),
        Answer::Events(says("Hello.")),
    ]));
    let agent = Stage::new().agent(&model);
    let answer = say(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("empty answer"), "{}", answer.text);
    let answer = say(&agent, "a story").await;
    assert_eq!(answer.outcome, TurnOutcome::Completed);
    assert!(answer.text.starts_with("Once upon a\n\n(The answer was cut"), "{}", answer.text);
    assert_eq!(say(&agent, "hello?").await.text, "Hello.");
}

fn too_long() -> Answer {
    Answer::Fails(ChatError::ContextOverflow { message: "too many tokens".to_owned() })
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_trimmed_until_it_fits_or_nothing_is_left() {
    let wordy = Probe::new("wordy", Does::SaysMuch(50_000));
    let mut answers = vec![
        Answer::Events(calls(&[("a", "wordy", "")], FinishReason::ToolCalls)),
        too_long(),
        too_long(),
        Answer::Events(says("Done.")),
    ];
    answers.extend((0..20).map(|_| too_long()));
    let model = Witness::of(Canned::new(answers));
    let agent = Stage::new().with(&wordy).agent(&model);
    assert_eq!(say(&agent, "go").await.text, "Done.");
    let result = &model.results()[0];
    assert!(result.len() < 13_000 && result.contains("chars omitted]"), "{}", result.len());
    let answer = say(&agent, "again").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("start a new session"), "{}", answer.text);
    assert!(model.asked() < 4 + 10, "it gives up");
    assert!(model.results().is_empty(), "the older exchange had to go");
}

#[tokio::test(start_paused = true)]
async fn a_turn_ends_at_its_deadline_whatever_hangs() {
    let stuck = Probe::new("stuck", Does::Hangs);
    let call = calls(&[("a", "stuck", "")], FinishReason::ToolCalls);
    let model = Witness::of(Canned::new([
        Answer::Never,
        Answer::Events(call),
        Answer::Events(says("Hello.")),
    ]));
    let mut stage = Stage::new().with(&stuck);
    stage.limits.turn_timeout = Duration::from_secs(30);
    let agent = stage.agent(&model);
    for (text, who) in [("model", "the model"), ("tool", "its tools")] {
        let began = tokio::time::Instant::now();
        let answer = say(&agent, text).await;
        assert!(answer.text.contains("out of time") && answer.text.contains(who), "{answer:?}");
        assert_eq!(began.elapsed().as_secs(), 30);
    }
    assert_eq!(say(&agent, "hello?").await.text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_tool_and_leaves_a_valid_conversation() {
    let stuck = Probe::new("stuck", Does::Hangs);
    let echo = Probe::new("echo", Does::Echo);
    let both = [("a", "echo", ""), ("b", "stuck", ""), ("c", "echo", "")];
    let model = Witness::of(Canned::new([
        Answer::Events(calls(&both, FinishReason::ToolCalls)),
        Answer::Events(says("Hello.")),
    ]));
    let mut stage = Stage::new().with(&stuck).with(&echo);
    stage.definition.strategy = rockbot_agent::ExecutionStrategy::Sequential;
    let agent = stage.agent(&model);
    let (turn, _) = start(&agent, message("s", "go"));
    stuck.is_called().await;
    let cancelled = agent.message(cancel("s"), Ear::default().sink()).await;
    assert_eq!(cancelled.outcome, TurnOutcome::Cancelled);
    assert_eq!(turn.await.unwrap(), cancelled);
    assert!(stuck.token().is_cancelled());
    assert_eq!(say(&agent, "hello?").await.text, "Hello.");
    let cancelled = "(tool failed: cancelled)";
    assert_eq!(model.results(), ["{}", cancelled, cancelled]);
    assert_eq!(echo.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ignores_a_cancel_is_left_behind() {
    let stuck = Probe::new("stuck", Does::HangsWhateverHappens);
    let call = calls(&[("a", "stuck", "")], FinishReason::ToolCalls);
    let model = Witness::of(Canned::new([Answer::Events(call)]));
    let agent = Stage::new().with(&stuck).agent(&model);
    let (turn, _) = start(&agent, message("s", "go"));
    stuck.is_called().await;
    let began = tokio::time::Instant::now();
    agent.message(cancel("s"), Ear::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_stops_a_model_that_is_slow_to_answer() {
    let model = Witness::of(Canned::new([Answer::Never]));
    let agent = Stage::new().agent(&model);
    let (turn, _) = start(&agent, message("s", "go"));
    crate::stage::all_wait().await;
    agent.message(cancel("s"), Ear::default().sink()).await;
    assert_eq!(turn.await.unwrap().outcome, TurnOutcome::Cancelled);
    let answer = agent.message(cancel("s"), Ear::default().sink()).await;
    assert_eq!(answer.text, "No turn was running.");
}
