//! Chains of agents that delegate a request further: circles, forged lineages, and work that goes back and forth.

use rockbot_contracts::{AgentTaskRequest, AgentTaskResult};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};

use crate::peer_harness::{Asked, Peers, Planned, invoke, next, task};

/// Delegates each request to `next`, and answers after the result.
fn delegates_to(next: &'static str) -> impl Fn(&Asked) -> Planned + Send + Sync + 'static {
    move |asked| {
        let may_delegate = asked.tools.iter().any(|tool| tool == "invoke_agent");
        if may_delegate && asked.results.is_empty() {
            invoke(next, "go")
        } else {
            Planned::Text("Done.")
        }
    }
}

/// Returns the result of the only call of an agent's task.
fn result_of_task(peers: &Peers, agent: &str) -> String {
    let asked = peers.agent(agent).model.asked();
    assert_eq!(asked.len(), 2, "{agent} had one task");
    assert!(asked[1].session.starts_with("agent-task-"), "{}", asked[1].session);
    asked[1].results[0].clone()
}

#[tokio::test]
async fn chain_that_returns_to_its_first_agent_is_refused() {
    let mut peers = Peers::start().await;
    for (agent, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        peers = peers.with(agent, delegates_to(next)).await;
    }
    assert_eq!(peers.say("a", "go").await, "Done.");
    assert_eq!(peers.follow_up().await.1, "Done.");
    let refused = result_of_task(&peers, "c");
    assert!(refused.contains("already works on this request"), "{refused}");
    assert!(result_of_task(&peers, "b").contains("Agent 'c' answered"));
    let first = peers.agent("a").model.asked();
    assert!(first.iter().all(|asked| asked.session == "s"), "no task of the first agent ran");
}

#[tokio::test]
async fn forged_short_lineage_ends_within_three_delegations() {
    let mut peers = Peers::start().await;
    for (agent, next) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")] {
        peers = peers.with(agent, delegates_to(next)).await;
    }
    let mut responses = peers.responses().await;
    let forged = AgentTaskRequest { lineage: Vec::new(), depth: 0, ..task("t", "go") };
    peers.request("a", &forged).await;
    let result: AgentTaskResult = next(&mut responses).await;
    assert_eq!(result.text(), "Done.");
    let refused = result_of_task(&peers, "c");
    assert!(refused.contains("already delegated 3 times"), "{refused}");
    assert!(peers.agent("d").model.asked().is_empty());
    assert_eq!(result.usage.unwrap().model_calls, 6, "two of each agent");
}

#[tokio::test]
async fn forged_lineage_includes_its_sender() {
    let peers = Peers::start().await.with("a", delegates_to("cli")).await;
    let mut responses = peers.responses().await;
    let forged = AgentTaskRequest { lineage: Vec::new(), depth: 0, ..task("t", "go") };
    peers.request("a", &forged).await;
    let _ended: AgentTaskResult = next(&mut responses).await;
    let refused = result_of_task(&peers, "a");
    assert!(refused.contains("already works on this request"), "{refused}");
}

fn is_stop(asked: &Asked) -> bool {
    asked.user.starts_with("stop")
}

/// Returns `true` if the work of a task has ended, and its result was read.
pub(crate) fn is_read(task: &Value) -> bool {
    let is_awaited = task["peer"]["isAwaited"] == true && task["ended"].is_u64();
    is_awaited || task["foldedBy"].is_string()
}

/// Delegates to another agent and to a sub-agent in each response that may.
fn always_delegates_to(next: &'static str) -> impl Fn(&Asked) -> Planned + Send + Sync + 'static {
    move |asked| {
        if is_stop(asked) {
            return Planned::Text("Stopped.");
        }
        let task = json!({"agent_name": next, "skill": "ask", "message": "go"});
        let calls = [("invoke_agent", task), ("spawn_subagent", json!({"description": "go"}))];
        let offered = calls.into_iter().filter(|(name, _)| asked.tools.iter().any(|t| t == name));
        let offered: Vec<_> = offered.collect();
        if offered.is_empty() { Planned::Text("Done.") } else { Planned::Calls(offered) }
    }
}

#[tokio::test]
async fn agents_that_always_delegate_end_within_the_budget() {
    let peers = Peers::start().await.with("a", always_delegates_to("b")).await;
    let peers = peers.with("b", always_delegates_to("a")).await;
    peers.say("a", "go").await;
    let ended = async {
        loop {
            if !peers.agent("a").tasks().await.iter().all(is_read) {
                tokio::task::yield_now().await;
                continue;
            }
            // After the turns on results that wait.
            peers.say("a", "stop").await;
            let asked = peers.agent("a").model.asked();
            let before = asked.iter().rev().nth(1).expect("an earlier request");
            if is_stop(before) {
                return;
            }
        }
    };
    within_timeout("the end of all work", ended).await;
    let (first, second) = (peers.agent("a"), peers.agent("b"));
    let asked = first.model.asked().into_iter().chain(second.model.asked());
    let requests = asked.filter(|asked| !is_stop(asked)).count();
    assert!(requests <= 200, "{requests} model calls");
    let records = first.tasks().await.into_iter().chain(second.tasks().await);
    // A received task is one that the other agent sent.
    let delegations = records.filter(|record| record["kind"] != "received").count();
    assert!((2..=32).contains(&delegations), "{delegations} delegations");
    for record in first.tasks().await {
        let generation = record["root"]["generation"].as_u64().expect("a number");
        assert!(generation <= 3, "{record}");
    }
}
