//! Tokens, calls and cost reported with a turn's answer.

use rockbot_agent::ModelBehavior;
use rockbot_contracts::TurnUsage;
use rockbot_llm::{ChatEvent, ScriptedTurn, Usage};
use serde_json::json;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, ProbeTool, RecordingModel, send,
};

#[tokio::test]
async fn usage_covers_turn_and_conversation() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().when("look").call("echo", json!({"n": 1})).call("gone", json!({})),
        ScriptedTurn::text("Seen."),
        ScriptedTurn::text("Bye.").when("bye"),
    ]);
    let mut fixture = AgentFixture::new().with(&echo);
    fixture.behavior = ModelBehavior {
        input_price: Some(1.0),
        output_price: Some(1.0),
        ..ModelBehavior::default()
    };
    let agent = fixture.agent(&model);
    let TurnUsage { turn: first, session, .. } = *send(&agent, "look").await.usage.unwrap();
    assert_eq!((first.model_calls, first.tool_calls, first.unmetered_calls), (2, 2, 0));
    assert_eq!(first.tool_bytes_in, r#"{"n":1}{}"#.len() as u64);
    assert!(first.tool_bytes_out > first.tool_bytes_in, "the result of the rejected call counts");
    assert_eq!(first.cost_micros, first.prompt_tokens + first.completion_tokens);
    assert_eq!(session, first);

    let answer = send(&agent, "bye").await;
    assert_eq!(answer.text, "Bye.");
    let TurnUsage { turn: second, session, .. } = *answer.usage.unwrap();
    assert_eq!((second.model_calls, second.tool_calls), (1, 0));
    let mut both = first;
    both += second;
    assert_eq!(session, both);
    assert_eq!(agent.spending(), both);
}

#[tokio::test]
async fn failed_stream_is_metered() {
    let usage = Usage { prompt_tokens: 70, completion_tokens: 3, cost_micros: Some(5) };
    let incomplete = vec![ChatEvent::Text("Half an ans".to_owned()), ChatEvent::Usage(usage)];
    let unmetered = vec![ChatEvent::Text("Half an ans".to_owned())];
    let model = RecordingModel::new(CannedModel::new([incomplete, unmetered].map(Answer::Events)));
    let agent = AgentFixture::new().agent(&model);
    let TurnUsage { turn, .. } = *send(&agent, "go").await.usage.unwrap();
    assert_eq!((turn.model_calls, turn.prompt_tokens, turn.cost_micros), (1, 70, 5));
    assert_eq!(turn.unmetered_calls, 0);
    let TurnUsage { turn, .. } = *send(&agent, "go").await.usage.unwrap();
    assert_eq!((turn.model_calls, turn.unmetered_calls, turn.unpriced_calls), (1, 1, 1));
}
