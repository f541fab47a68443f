//! What a turn may use follows from why it began, at the model's list and when a call is run.

use std::sync::Arc;

use rockbot_agent::{ModelBehaviour, ToolFilter, TurnEvent, TurnOrigin};
use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{FinishReason, ScriptedTurn};
use rockbot_testkit::tool_names;
use rockbot_tools::{EntryPoint, ToolSource};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::stage::{
    Answer, Canned, Does, Ear, Probe, Stage, Witness, all_wait, calls, message, say, says, start,
};

/// Calls in one answer of the model.
const BATCH: usize = 50;

/// A turn that begins so, whose model tries a thousand names for `tool`.
async fn check(tool: &Arc<Probe>, entry: EntryPoint, filter: ToolFilter) {
    let name = tool.name();
    let inventions = tool_names::variants(name);
    let answers = inventions.chunks(BATCH).map(|names| {
        let names: Vec<_> = names.iter().map(|name| ("", name.as_str(), "{}")).collect();
        Answer::Events(calls(&names, FinishReason::ToolCalls))
    });
    let answers = answers.chain([Answer::Events(says("I give up."))]).collect::<Vec<_>>();
    let model = Witness::of(Canned::new(answers));
    let mut stage = Stage::new().with(tool);
    stage.registry.alias(format!("functions.{name}"), name);
    stage.definition.tools = filter;
    stage.definition.max_iterations = 100;
    let agent = stage.agent(&model);
    let turn = agent.turn(TurnOrigin::new(entry), message("s", "go"), Ear::default().sink());
    assert_eq!(turn.await.text, "I give up.");
    let results = model.results();
    assert_eq!(results.len(), inventions.len());
    let found = results.iter().zip(&inventions).filter(|(result, written)| {
        let found = result.contains("may not use that tool");
        let unknown = result.contains("tool not found");
        assert!(result.starts_with("(tool failed:") && (found || unknown), "{written}: {result}");
        found
    });
    assert!(found.count() > 1, "the name itself and its alias find the tool");
    assert_eq!(tool.calls(), 0);
    assert!(model.last().tools.is_empty());
}

#[tokio::test]
async fn a_model_that_invents_names_for_what_it_may_not_use_is_refused_every_time() {
    let register = Probe::of("mcp_register_server", ToolSource::McpManagement);
    check(&register, EntryPoint::Subagent, ToolFilter::default()).await;
    let ask = Probe::of("invoke_agent", ToolSource::A2a);
    check(&ask, EntryPoint::LateA2aReply, ToolFilter::default()).await;
    let bash = Probe::of("bash", ToolSource::Files);
    let no_bash = ToolFilter { deny: vec!["bash".to_owned()], ..ToolFilter::default() };
    check(&bash, EntryPoint::UserTurn, no_bash).await;
}

#[tokio::test]
async fn each_reason_to_begin_a_turn_offers_the_tools_of_its_profile() {
    let tools = [
        ("cancel_scheduled_task", ToolSource::Scheduling),
        ("invoke_agent", ToolSource::A2a),
        ("mcp_register_server", ToolSource::McpManagement),
        ("read_file", ToolSource::Files),
        ("spawn_subagent", ToolSource::Subagent),
    ];
    for entry in EntryPoint::ALL {
        let kept_out: &[&str] = match entry {
            EntryPoint::UserTurn | EntryPoint::Feedback => &[],
            EntryPoint::Subagent => {
                &["cancel_scheduled_task", "mcp_register_server", "spawn_subagent"]
            }
            EntryPoint::ScheduledTask => &["mcp_register_server", "spawn_subagent"],
            _ => &["invoke_agent"],
        };
        let mut stage = Stage::new();
        for (name, source) in &tools {
            stage = stage.with(&Probe::of(name, source.clone()));
        }
        let model = Witness::script([ScriptedTurn::text("Done.")]);
        let agent = stage.agent(&model);
        let turn = agent.turn(TurnOrigin::new(entry), message("s", "go"), Ear::default().sink());
        assert_eq!(turn.await.outcome, TurnOutcome::Completed);
        let offered: Vec<_> = model.last().tools.into_iter().map(|tool| tool.name).collect();
        let expected = tools.iter().map(|(name, _)| *name).filter(|name| !kept_out.contains(name));
        assert_eq!(offered, expected.collect::<Vec<_>>(), "{entry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_of_another_profile_does_not_slip_into_a_turn_that_may_use_more() {
    let gate = Arc::new(Semaphore::new(0));
    let model = Witness::of(Canned::new([
        Answer::Gated(gate.clone(), "To the person."),
        Answer::Events(says("About the other agent.")),
    ]));
    let agent = Stage::new().with(&Probe::of("invoke_agent", ToolSource::A2a)).agent(&model);
    let (person, _) = start(&agent, message("s", "hello"));
    all_wait().await;
    let ear = Ear::default();
    let sink = ear.sink();
    let other = {
        let agent = agent.clone();
        tokio::spawn(async move {
            let origin = TurnOrigin::new(EntryPoint::A2aResult);
            agent.turn(origin, message("s", "its answer"), sink).await
        })
    };
    all_wait().await;
    gate.add_permits(1);
    assert_eq!(person.await.unwrap().text, "To the person.");
    assert_eq!(other.await.unwrap().text, "About the other agent.");
    assert!(!ear.events().contains(&TurnEvent::Steered));
    assert!(model.last().tools.is_empty(), "its turn asks no other agents");
}

#[tokio::test]
async fn a_tool_with_a_long_name_is_offered_and_called_under_one_that_the_provider_takes() {
    let long = "x".repeat(100);
    let tool = Probe::new(&long, Does::Echo);
    for (limit, shown) in [(64, 64), (128, 100)] {
        let names = move |request: &rockbot_llm::ChatRequest| request.tools[0].name.clone();
        let offered = Witness::script([ScriptedTurn::text("Hm.")]);
        let behaviour = ModelBehaviour { tool_name_bytes: limit, ..ModelBehaviour::default() };
        let stage = || Stage { behaviour: behaviour.clone(), ..Stage::new() }.with(&tool);
        say(&stage().agent(&offered), "go").await;
        let name = names(&offered.last());
        assert_eq!(name.len(), shown);

        let before = tool.calls();
        let model = Witness::script([
            ScriptedTurn::default().call(&name, json!({"n": 1})),
            ScriptedTurn::text("Done."),
        ]);
        say(&stage().agent(&model), "go").await;
        assert_eq!(tool.calls(), before + 1);
        assert_eq!(model.results(), [r#"{"n":1}"#]);
    }
}
