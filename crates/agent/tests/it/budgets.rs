//! The budget of a message: limits of its turn and of the turns that it starts, and their spending.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{Agent, AgentDefinition, AgentParts, Team};
use rockbot_contracts::{AgentName, user::TurnOutcome};
use rockbot_llm::{ChatModel, ScriptedTurn};
use rockbot_tools::{BudgetLimits, ToolRegistry};
use serde_json::json;

use crate::harness::{
    AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, cancel, message, register_members,
    send, spawn_send,
};

/// Returns a script that calls `tool` again and again.
fn greedy(tool: &str, arguments: &serde_json::Value) -> Vec<ScriptedTurn> {
    let call = || ScriptedTurn::default().call(tool, arguments.clone());
    (0..100).map(|_| call()).collect()
}

fn limited(model_calls: u64) -> AgentFixture {
    let mut fixture = AgentFixture::new();
    fixture.limits.budget = BudgetLimits { model_calls, ..BudgetLimits::default() };
    fixture.definition.max_iterations = 100;
    fixture
}

/// Returns an agent with the tools `agent__a`, `agent__b`, … of agents that use `model`.
fn caller(
    fixture: AgentFixture,
    names: &[&str],
    model: &Arc<RecordingModel>,
) -> (Team, AgentFixture) {
    let registry: Arc<ToolRegistry> = fixture.registry.clone();
    let factory = {
        let (registry, model) = (registry.clone(), model.clone());
        Arc::new(move |definition: AgentDefinition| {
            let model: Arc<dyn ChatModel> = model.clone();
            AgentParts::new(definition, model, registry.clone())
        })
    };
    let team = Team::new(AgentName::new("tester").unwrap(), factory);
    let definition = |name: &&str| {
        let named = AgentDefinition::new(AgentName::new(*name).unwrap(), "Be of use.");
        AgentDefinition { max_iterations: 100, ..named }
    };
    team.set_definitions(names.iter().map(definition).collect());
    register_members(&team, &registry);
    (team, fixture)
}

#[tokio::test]
async fn used_up_budget_ends_the_turn_with_an_answer() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let mut script = greedy("echo", &json!({}));
    script[5] = ScriptedTurn::text("As far as I came.");
    let model = RecordingModel::script(script);
    let agent = limited(6).with(&echo).agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!(
        (answer.outcome, answer.text.as_str()),
        (TurnOutcome::BudgetExceeded, "As far as I came.")
    );
    assert_eq!((model.request_count(), echo.calls()), (6, 5));
}

#[tokio::test]
async fn tool_calls_beyond_the_budget_do_not_run() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let five = (0..5).fold(ScriptedTurn::default(), |turn, n| turn.call("echo", json!({"n": n})));
    let model = RecordingModel::script([five, ScriptedTurn::text("Done.")]);
    let mut fixture = AgentFixture::new().with(&echo);
    fixture.limits.budget.tool_calls = 3;
    let answer = send(&fixture.agent(&model), "go").await;
    assert_eq!(answer.outcome, TurnOutcome::Completed);
    assert_eq!(echo.calls(), 3);
    let refused = model.tool_results().iter().filter(|text| text.contains("tool calls")).count();
    assert_eq!(refused, 2, "{:?}", model.tool_results());
}

#[tokio::test]
async fn greedy_sub_agents_share_the_budget_of_the_message() {
    let greedy_model = RecordingModel::script(greedy("agent__unknown", &json!({})));
    let calls = ["agent__a", "agent__b", "agent__c"];
    let first = calls
        .iter()
        .fold(ScriptedTurn::default(), |turn, name| turn.call(*name, json!({"message": "Go."})));
    let (_team, fixture) = caller(limited(20), &["a", "b", "c"], &greedy_model);
    let model = RecordingModel::script([first, ScriptedTurn::text("Done.")]);
    let agent: Agent = fixture.agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "Done."));
    let usage = answer.usage.unwrap();
    let counted = (model.request_count() + greedy_model.request_count()) as u64;
    assert_eq!(usage.turn.model_calls, counted);
    assert!(counted <= 20, "{counted}");
    for result in model.tool_results() {
        assert!(result.contains("used up"), "{result}");
    }
}

#[tokio::test(start_paused = true)]
async fn spending_of_cancelled_and_late_sub_agents_is_counted() {
    for ends_by_cancel in [true, false] {
        let slow = ProbeTool::new("slow", Behavior::Hang);
        let inner = RecordingModel::script([ScriptedTurn::default().call("slow", json!({}))]);
        let mut fixture = AgentFixture::new().with(&slow);
        fixture.limits.turn_timeout = Duration::from_secs(60);
        let (_team, fixture) = caller(fixture, &["b"], &inner);
        let model = RecordingModel::script([
            ScriptedTurn::default().call("agent__b", json!({"message": "Go."})),
            ScriptedTurn::text("Done."),
        ]);
        let agent = fixture.agent(&model);
        let (turn, _) = spawn_send(&agent, message("s", "go"));
        slow.wait_for_call().await;
        if ends_by_cancel {
            agent.send(cancel("s"), EventLog::default().sink()).await;
        }
        let usage = turn.await.unwrap().usage.unwrap();
        assert_eq!(usage.children.model_calls, 1, "cancelled: {ends_by_cancel}");
        assert_eq!(usage.turn.model_calls, 2, "cancelled: {ends_by_cancel}");
        assert_eq!(usage.session, usage.turn);
    }
}
