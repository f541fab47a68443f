//! The budget of a message with sub-agents: after a takeover, when it is used up, and with a model that never stops.

use std::sync::Arc;

use rockbot_agent::internal_tools::InternalTools;
use rockbot_contracts::{ReplyBody, user::TurnOutcome};
use rockbot_llm::{ChatEvent, ChatRequest, ToolChoice};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::BudgetLimits;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    harness::{Behavior, ProbeTool, message, text_events},
    subagent_harness::{
        Fleet, FunctionModel, GatedEvents, call_all, exchange, follow_up, is_fold, is_sub_agent,
        say, spawns, tasks, tester,
    },
};

fn limited(model_calls: u64) -> Fleet {
    let budget = BudgetLimits { model_calls, ..BudgetLimits::default() };
    Fleet { budget, ..Fleet::new() }
}

/// Makes these calls in every response, until the model must answer.
fn greedy(request: &ChatRequest, calls: &[(&str, Value)]) -> Vec<ChatEvent> {
    match request.tool_choice {
        ToolChoice::None => text_events("As far as I came."),
        _ => call_all(calls),
    }
}

/// Spawns sub-agents and works; everyone then calls `echo` for as long as possible.
fn script(
    spawned: usize,
    gate: Option<Arc<Semaphore>>,
) -> impl Fn(&ChatRequest) -> GatedEvents + Clone {
    move |request| {
        if is_sub_agent(request) {
            return (greedy(request, &[("echo", json!({}))]), gate.clone());
        }
        if is_fold(request) {
            return (text_events("All parts are done."), None);
        }
        let mut calls = vec![("echo", json!({}))];
        if exchange(request).1.is_empty() {
            calls = spawns(spawned);
            calls.push(("work", json!({})));
        }
        (greedy(request, &calls), None)
    }
}

fn requests(models: &[&Arc<FunctionModel>]) -> u64 {
    let all = models.iter().map(|one| one.requests(true).len() + one.requests(false).len());
    all.sum::<usize>() as u64
}

#[tokio::test]
async fn continued_turn_leaves_sub_agents_their_share() {
    const MODEL_CALLS: u64 = 24;
    let (fleet, closed) = (limited(MODEL_CALLS), Arc::new(Semaphore::new(0)));
    let model = FunctionModel::new(script(3, Some(closed)));
    let (stalled, echo) =
        (ProbeTool::new("work", Behavior::Hang), ProbeTool::new("echo", Behavior::Echo));
    let agent = fleet.agent(&model, &[&stalled, &echo]);
    let inbox = fleet.replica(&agent, "one").await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    let replies = client.send(&tester(), &message("s", "go")).await.unwrap();
    stalled.wait_for_call().await;
    wait_until("three run", || model.requests(true).len() == 3).await;
    let other_model = FunctionModel::new(script(3, None));
    let working = ProbeTool::new("work", Behavior::Echo);
    let other = fleet.agent(&other_model, &[&working, &echo]);
    let _other_inbox = fleet.replica(&other, "two").await;
    drop((inbox, agent));
    let reply = within_timeout("an answer", replies.last()).await.unwrap();
    assert!(format!("{reply:?}").contains("As far as I came."), "{reply:?}");
    let (ids, text, usage, _) = follow_up(&mut follow_ups).await;
    assert_eq!((ids.len(), text.as_str()), (3, "All parts are done."));
    let counted = requests(&[&model, &other_model]);
    assert_eq!(usage.session.model_calls, counted);
    assert!(counted <= MODEL_CALLS, "{counted} requests");
}

#[tokio::test]
async fn results_are_read_when_the_rest_of_the_budget_is_used_up() {
    for model_calls in [12, 20, 30] {
        let fleet = limited(model_calls);
        let model = FunctionModel::new(script(2, None));
        let echo = ProbeTool::new("echo", Behavior::Echo);
        let work = ProbeTool::new("work", Behavior::Echo);
        let _served = fleet.serve(fleet.agent(&model, &[&echo, &work])).await;
        let (client, mut follow_ups) = fleet.client("proxy").await;
        let (text, _) = say(&client, "go").await;
        assert_eq!(text, "As far as I came.");
        let (_, text, usage, _) = follow_up(&mut follow_ups).await;
        assert_eq!(text, "All parts are done.", "{model_calls} calls");
        let counted = requests(&[&model]);
        assert_eq!(usage.session.model_calls, counted);
        assert!(counted <= model_calls, "{counted} of {model_calls}");
    }
}

/// The calls of a model that delegates whatever it can.
fn every_mechanism() -> [(&'static str, Value); 4] {
    let step = json!({"id": "a", "mode": "Llm", "prompt": "Think."});
    let plans = json!({"definitions": [{"description": "A plan", "steps": [step]}]});
    let item = json!({"id": 1, "tool": "echo", "parameters": {}});
    [
        ("spawn_subagent", json!({"description": "a part"})),
        ("spawn_wisps", plans),
        ("agent__batch", json!({"calls": [item]})),
        ("echo", json!({})),
    ]
}

#[tokio::test]
async fn model_that_always_delegates_ends_within_the_budget() {
    let every = every_mechanism();
    // Every combination of the mechanisms.
    for chosen in 1_u32..1 << every.len() {
        let calls: Vec<_> = every
            .iter()
            .enumerate()
            .filter(|(at, _)| (chosen & (1 << at)) != 0)
            .map(|(_, call)| call.clone())
            .collect();
        let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
        let internal = InternalTools { batch: true, wisps: true, ..InternalTools::default() };
        let limits = BudgetLimits {
            model_calls: 60,
            tool_calls: 200,
            delegations: 12,
            ..Default::default()
        };
        let fleet = Fleet { internal, budget: limits, ..Fleet::new() };
        let model = FunctionModel::new({
            let calls = calls.clone();
            move |request| (greedy(request, &calls), None)
        });
        let echo = ProbeTool::new("echo", Behavior::Echo);
        let _served = fleet.serve(fleet.agent(&model, &[&echo])).await;
        let (client, _follow_ups) = fleet.client("proxy").await;
        let replies = client.send(&tester(), &message("s", "go")).await.unwrap();
        let reply = within_timeout("an answer", replies.last()).await.unwrap();
        let ReplyBody::Answer { outcome, .. } = reply.body else { panic!("{reply:?}") };
        assert_eq!(outcome, TurnOutcome::BudgetExceeded, "{names:?}");
        let all_read = async {
            while tasks(&client).await.iter().any(|task| !task.is_folded) {
                tokio::task::yield_now().await;
            }
        };
        within_timeout("all results to be read", all_read).await;
        assert_eq!(tasks(&client).await.is_empty(), !names.contains(&"spawn_subagent"));
        let counted = requests(&[&model]);
        assert!(counted <= limits.model_calls, "{names:?}: {counted} requests");
        assert!(echo.calls() as u64 <= limits.tool_calls, "{names:?}");
    }
}
