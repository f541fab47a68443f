//! Tool profiles: the origin of a turn determines which tools are offered and callable.

use std::sync::Arc;

use rockbot_agent::{ModelBehavior, ToolFilter, TurnEvent, TurnOrigin};
use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{FinishReason, ScriptedTurn};
use rockbot_testkit::tool_name_variants;
use rockbot_tools::{EntryPoint, ToolSource};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, calls,
    message, send, settle, spawn_send, text_events,
};

/// Calls in one model answer.
const BATCH: usize = 50;

/// Runs a turn from this entry point in which the model tries a thousand names for `tool`.
async fn check(tool: &Arc<ProbeTool>, entry: EntryPoint, filter: ToolFilter) {
    let name = tool.name();
    let variants = tool_name_variants::variants(name);
    let answers = variants.chunks(BATCH).map(|names| {
        let names: Vec<_> = names.iter().map(|name| ("", name.as_str(), "{}")).collect();
        Answer::Events(calls(&names, FinishReason::ToolCalls))
    });
    let answers = answers.chain([Answer::Events(text_events("I give up."))]).collect::<Vec<_>>();
    let model = RecordingModel::new(CannedModel::new(answers));
    let mut fixture = AgentFixture::new().with(tool);
    fixture.registry.alias(format!("functions.{name}"), name);
    fixture.definition.tools = filter;
    fixture.definition.max_iterations = 100;
    fixture.limits.budget.tool_calls = u64::MAX;
    let agent = fixture.agent(&model);
    let turn =
        agent.run_turn(TurnOrigin::new(entry), message("s", "go"), EventLog::default().sink());
    assert_eq!(turn.await.text, "I give up.");
    let results = model.tool_results();
    assert_eq!(results.len(), variants.len());
    let found = results.iter().zip(&variants).filter(|(result, written)| {
        let found = result.contains("may not use that tool");
        let unknown = result.contains("tool not found");
        assert!(result.starts_with("(tool failed:") && (found || unknown), "{written}: {result}");
        found
    });
    assert!(found.count() > 1, "the name and its alias resolve to the tool");
    assert_eq!(tool.calls(), 0);
    assert!(model.last_request().tools.is_empty());
}

#[tokio::test]
async fn denied_tool_is_unreachable_under_any_name() {
    let register = ProbeTool::with_source("mcp_register_server", ToolSource::McpManagement);
    check(&register, EntryPoint::Subagent, ToolFilter::default()).await;
    let ask = ProbeTool::with_source("invoke_agent", ToolSource::A2a);
    check(&ask, EntryPoint::LateA2aReply, ToolFilter::default()).await;
    let bash = ProbeTool::with_source("bash", ToolSource::Files);
    let no_bash = ToolFilter { deny: vec!["bash".to_owned()], ..ToolFilter::default() };
    check(&bash, EntryPoint::UserTurn, no_bash).await;
}

#[tokio::test]
async fn entry_point_determines_offered_tools() {
    let tools = [
        ("cancel_scheduled_task", ToolSource::Scheduling),
        ("invoke_agent", ToolSource::A2a),
        ("mcp_register_server", ToolSource::McpManagement),
        ("read_file", ToolSource::Files),
        ("spawn_subagent", ToolSource::Subagent),
    ];
    for entry in EntryPoint::ALL {
        let denied: &[&str] = match entry {
            EntryPoint::UserTurn => &[],
            EntryPoint::Subagent | EntryPoint::A2aTask => {
                &["cancel_scheduled_task", "mcp_register_server", "spawn_subagent"]
            }
            EntryPoint::ScheduledTask | EntryPoint::SubagentResult => {
                &["mcp_register_server", "spawn_subagent"]
            }
            _ => &["invoke_agent"],
        };
        let mut fixture = AgentFixture::new();
        for (name, source) in &tools {
            fixture = fixture.with(&ProbeTool::with_source(name, source.clone()));
        }
        let model = RecordingModel::script([ScriptedTurn::text("Done.")]);
        let agent = fixture.agent(&model);
        let turn =
            agent.run_turn(TurnOrigin::new(entry), message("s", "go"), EventLog::default().sink());
        assert_eq!(turn.await.outcome, TurnOutcome::Completed);
        let offered: Vec<_> =
            model.last_request().tools.into_iter().map(|tool| tool.name).collect();
        let expected = tools.iter().map(|(name, _)| *name).filter(|name| !denied.contains(name));
        assert_eq!(offered, expected.collect::<Vec<_>>(), "{entry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn message_with_other_profile_does_not_steer() {
    let gate = Arc::new(Semaphore::new(0));
    let model = RecordingModel::new(CannedModel::new([
        Answer::Gated(gate.clone(), "To the user."),
        Answer::Events(text_events("About the other agent.")),
    ]));
    let agent = AgentFixture::new()
        .with(&ProbeTool::with_source("invoke_agent", ToolSource::A2a))
        .agent(&model);
    let (first, _) = spawn_send(&agent, message("s", "hello"));
    settle().await;
    let events = EventLog::default();
    let sink = events.sink();
    let other = {
        let agent = agent.clone();
        tokio::spawn(async move {
            let origin = TurnOrigin::new(EntryPoint::A2aResult);
            agent.run_turn(origin, message("s", "its answer"), sink).await
        })
    };
    settle().await;
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().text, "To the user.");
    assert_eq!(other.await.unwrap().text, "About the other agent.");
    assert!(!events.events().contains(&TurnEvent::Steered));
    assert!(model.last_request().tools.is_empty(), "its profile has no agent tools");
}

#[tokio::test]
async fn long_tool_name_is_shortened_for_the_provider() {
    let long = "x".repeat(100);
    let tool = ProbeTool::new(&long, Behavior::Echo);
    for (limit, shown) in [(64, 64), (128, 100)] {
        let names = move |request: &rockbot_llm::ChatRequest| request.tools[0].name.clone();
        let offered = RecordingModel::script([ScriptedTurn::text("Hm.")]);
        let behavior = ModelBehavior { tool_name_bytes: limit, ..ModelBehavior::default() };
        let fixture =
            || AgentFixture { behavior: behavior.clone(), ..AgentFixture::new() }.with(&tool);
        send(&fixture().agent(&offered), "go").await;
        let name = names(&offered.last_request());
        assert_eq!(name.len(), shown);

        let before = tool.calls();
        let model = RecordingModel::script([
            ScriptedTurn::default().call(&name, json!({"n": 1})),
            ScriptedTurn::text("Done."),
        ]);
        send(&fixture().agent(&model), "go").await;
        assert_eq!(tool.calls(), before + 1);
        assert_eq!(model.tool_results(), [r#"{"n":1}"#]);
    }
}
