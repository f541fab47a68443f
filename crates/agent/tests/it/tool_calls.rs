//! Tool calls of one answer: order, failures and timeouts.

use std::time::Duration;

use rockbot_agent::ExecutionStrategy;
use rockbot_agent::{ToolFilter, TurnEvent};
use rockbot_contracts::{Executed, ToolErrorCode, user::TurnOutcome};
use rockbot_llm::{ChatMessage, FinishReason, ScriptedTurn, ToolCallRequest};
use serde_json::json;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, calls,
    message, send, text_events,
};

#[tokio::test(start_paused = true)]
async fn parallel_results_keep_the_order_of_calls() {
    let slow = ProbeTool::new("slow", Behavior::Delay(Duration::from_secs(5)));
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::text("Let me look.").call("slow", json!({})).call("echo", json!({"n": 1})),
        ScriptedTurn::text("Done."),
    ]);
    let agent = AgentFixture::new().with(&slow).with(&echo).agent(&model);
    let events = EventLog::default();
    let answer = agent.send(message("s", "go"), events.sink()).await;
    assert_eq!((answer.text.as_str(), answer.outcome), ("Done.", TurnOutcome::Completed));

    let call = |id: &str, name: &str, arguments: &str| ToolCallRequest {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let result = |id: &str, content: &str| ChatMessage::Tool {
        tool_call_id: id.to_owned(),
        content: content.to_owned(),
    };
    let expected = [
        ChatMessage::User("go".to_owned()),
        ChatMessage::Assistant {
            text: "Let me look.".to_owned(),
            tool_calls: vec![
                call("call_s_0_0", "slow", "{}"),
                call("call_s_0_1", "echo", r#"{"n":1}"#),
            ],
        },
        result("call_s_0_0", "slow is done"),
        result("call_s_0_1", r#"{"n":1}"#),
    ];
    let ChatMessage::System(prompt) = &model.last_request().messages[0] else {
        panic!("no prompt")
    };
    assert!(prompt.starts_with("Be brief.\n\nToday is "), "{prompt}");
    assert_eq!(model.last_request().messages[1..], expected);
    assert_eq!(model.last_request().session, "s");
    assert_eq!(model.last_request().tools.len(), 2);

    // Both are reported, each with an id that is unique in the fleet.
    let ids = [slow.ids(), echo.ids()].concat();
    let started = events.events().into_iter().filter_map(|event| match event {
        TurnEvent::ToolStarted { tool_call_id, tool_name, .. } => Some((tool_call_id, tool_name)),
        _ => None,
    });
    let names = ["slow".to_owned(), "echo".to_owned()];
    assert_eq!(started.collect::<Vec<_>>(), ids.into_iter().zip(names).collect::<Vec<_>>());
    let finished: Vec<_> = events
        .events()
        .into_iter()
        .filter_map(|event| match event {
            TurnEvent::ToolFinished { tool_name, error, executed, bytes, .. } => {
                Some((tool_name, error, executed, bytes))
            }
            _ => None,
        })
        .collect();
    let expected =
        [("echo".to_owned(), None, Executed::Yes, 7), ("slow".to_owned(), None, Executed::Yes, 12)];
    assert_eq!(finished, expected);
    assert_eq!(events.events().last(), Some(&TurnEvent::TextDelta { text: "Done.".to_owned() }));
}

#[tokio::test]
async fn failed_calls_are_reported_to_the_model() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let broken = ProbeTool::new("broken", Behavior::Fail);
    let secret = ProbeTool::new("secret", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default()
            .call("no_such_tool", json!({}))
            .call("echo", json!({"n": "one"}))
            .call("echo", json!("{not json"))
            .call("broken", json!({}))
            .call("secret", json!({}))
            .call("alias", json!({})),
        ScriptedTurn::text("I see."),
    ]);
    let mut fixture = AgentFixture::new().with(&echo).with(&broken).with(&secret);
    fixture.definition.tools =
        ToolFilter { deny: vec!["sec*".to_owned()], ..ToolFilter::default() };
    fixture.registry.alias("alias", "secret");
    let agent = fixture.agent(&model);
    assert_eq!(send(&agent, "go").await.text, "I see.");
    let results = model.tool_results();
    for (result, part) in results.iter().zip([
        "(tool failed: tool not found: no_such_tool)",
        "(tool failed: invalid arguments: /n",
        "(tool failed: invalid arguments: not valid JSON",
        "(tool failed: the disk is full)",
        "(tool failed: not permitted: this agent may not use that tool",
        "(tool failed: not permitted: this agent may not use that tool",
    ]) {
        assert!(result.starts_with(part), "{part}: {result}");
    }
    assert_eq!(results.len(), 6);
    assert_eq!((echo.calls(), secret.calls()), (0, 0));
    let offered: Vec<_> = model.last_request().tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(offered, ["broken", "echo"]);
}

#[tokio::test]
async fn missing_and_duplicate_call_ids_are_accepted() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let twice = [("x", "echo", r#"{"n":1}"#), ("x", "echo", r#"{"n":2}"#), ("", "echo", "")];
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(&twice, FinishReason::ToolCalls)),
        Answer::Events(text_events("Done.")),
    ]));
    let agent = AgentFixture::new().with(&echo).agent(&model);
    assert_eq!(send(&agent, "go").await.text, "Done.");
    assert_eq!(model.tool_results(), [r#"{"n":1}"#, r#"{"n":2}"#, "{}"]);
    let mut ids = echo.ids();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn truncated_arguments_are_rejected() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    // Closing the bracket would make it valid, but perhaps not what the model intended.
    let cut = [("a", "echo", r#"{"n":1}"#), ("b", "echo", r#"{"n":1,"#)];
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(&cut, FinishReason::Length)),
        Answer::Events(text_events("Done.")),
    ]));
    let agent = AgentFixture::new().with(&echo).agent(&model);
    assert_eq!(send(&agent, "go").await.outcome, TurnOutcome::Completed);
    assert_eq!(echo.calls(), 1);
    assert!(model.tool_results()[1].contains("maximum length"), "{:?}", model.tool_results());
}

#[tokio::test(start_paused = true)]
async fn consecutive_timeouts_end_the_turn() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("stuck", json!({})),
        ScriptedTurn::default().call("stuck", json!({})).call("echo", json!({})),
    ]);
    let agent = AgentFixture::new().with(&stuck).with(&echo).agent(&model);
    let events = EventLog::default();
    let answer = agent.send(message("s", "go"), events.sink()).await;
    assert_eq!(answer.outcome, TurnOutcome::ToolTimeouts);
    assert!(answer.text.contains("2 tool calls in a row timed out"), "{}", answer.text);
    assert_eq!(
        answer.text.matches("stuck: ran, and may have finished").count(),
        2,
        "{}",
        answer.text
    );
    assert_eq!(model.request_count(), 2, "the model is not asked for the answer");
    let timeouts = events.events().into_iter().filter(|event| {
        matches!(event, TurnEvent::ToolFinished { error: Some(ToolErrorCode::Timeout), .. })
    });
    assert_eq!(timeouts.count(), 2);
    let progressed = |event: &TurnEvent| matches!(event, TurnEvent::ToolProgressed { text, .. } if text == "still here");
    assert!(events.events().iter().any(progressed));
}

#[tokio::test(start_paused = true)]
async fn call_without_timeout_resets_the_count() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("stuck", json!({})).call("echo", json!({})),
        ScriptedTurn::default().call("stuck", json!({})),
        ScriptedTurn::default().call("nothing_like_it", json!({})).call("stuck", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let agent = AgentFixture::new().with(&stuck).with(&echo).agent(&model);
    assert_eq!(send(&agent, "go").await.outcome, TurnOutcome::Completed);
    assert_eq!(model.tool_results()[0], "(tool failed: timeout)");
}

#[tokio::test(start_paused = true)]
async fn too_many_timeouts_skip_remaining_calls() {
    let stuck = ProbeTool::new("stuck", Behavior::Hang);
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(
            &[("a", "stuck", ""), ("b", "stuck", ""), ("c", "echo", "")],
            FinishReason::ToolCalls,
        )),
        Answer::Events(text_events("Hello again.")),
    ]));
    let mut fixture = AgentFixture::new().with(&stuck).with(&echo);
    fixture.definition.strategy = ExecutionStrategy::Sequential;
    let agent = fixture.agent(&model);
    assert_eq!(send(&agent, "go").await.outcome, TurnOutcome::ToolTimeouts);
    assert_eq!(echo.calls(), 0);
    assert_eq!(send(&agent, "and now?").await.text, "Hello again.");
    assert_eq!(model.tool_results()[2], "(tool skipped: too many earlier tool calls timed out)");
}

#[tokio::test(start_paused = true)]
async fn longer_timeout_of_a_tool_takes_precedence() {
    let (time, own) = (Duration::from_secs(100), Some(Duration::from_secs(120)));
    let patient = ProbeTool::with_timeout("patient", Behavior::Delay(time), own);
    let plain = ProbeTool::new("plain", Behavior::Delay(time));
    let model = RecordingModel::script([
        ScriptedTurn::default().call("patient", json!({})).call("plain", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let agent = AgentFixture::new().with(&patient).with(&plain).agent(&model);
    send(&agent, "go").await;
    assert_eq!(model.tool_results(), ["patient is done", "(tool failed: timeout)"]);
}

#[tokio::test]
async fn tool_context_names_session_and_agent() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("echo", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let agent = AgentFixture::new().with(&echo).agent(&model);
    send(&agent, "go").await;
    let contexts = echo.contexts.lock().unwrap();
    assert_eq!(contexts[0].session_id.as_str(), "s");
    assert_eq!(contexts[0].agent.as_str(), "tester");
    assert!(contexts[0].remaining() <= Duration::from_secs(60));
}

#[tokio::test]
async fn long_results_are_truncated() {
    let wordy = ProbeTool::new("wordy", Behavior::LongText(1000));
    let model = RecordingModel::script([
        ScriptedTurn::default().call("wordy", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let mut fixture = AgentFixture::new().with(&wordy);
    fixture.limits.result_bytes = 100;
    send(&fixture.agent(&model), "go").await;
    let result = &model.tool_results()[0];
    assert!(result.len() <= 100 && result.contains("chars omitted"), "{result}");
}
