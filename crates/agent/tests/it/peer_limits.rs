//! Limits of tasks at other agents, and their cancel by the model that handed them out.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{
    AgentTaskError, AgentTaskErrorCode, AgentTaskResult, Executed, ReplyBody, TaskId, TaskState,
};
use rockbot_store::LogName;
use rockbot_testkit::fixture::{assert_never, wait_until, within_timeout};
use rockbot_tools::BudgetLimits;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::yield_now};

use crate::{
    harness::message,
    peer_harness::{Asked, Peer, Peers, Planned, asks_worker, gated, next, task},
};

/// Returns the recorded results of the calls of a conversation, in their order.
async fn recorded_results(peer: &Peer, session: &str) -> Vec<Value> {
    let log = LogName::new(["conversation", peer.agent.name().as_str(), session]).unwrap();
    let entries = peer.stores().log.read(&log, 1, 1000).await.unwrap();
    let values = entries.iter().map(|entry| serde_json::from_slice::<Value>(&entry.value).unwrap());
    values.filter(|value| value["kind"] == "result").collect()
}

#[tokio::test]
async fn sixth_open_task_of_a_conversation_is_refused_unexecuted() {
    let gate = Arc::new(Semaphore::new(0));
    let plan = |asked: &Asked| {
        if asked.user.starts_with("go") && asked.results.is_empty() {
            let task = json!({"agent_name": "worker", "skill": "ask", "message": "Find it."});
            Planned::Calls(vec![("invoke_agent", task); 6])
        } else {
            Planned::Text("Done.")
        }
    };
    let worker = {
        let gate = gate.clone();
        move |_: &Asked| gated(&gate, "Found.")
    };
    let mut peers = Peers::start().await.with("worker", worker).await.with("caller", plan).await;
    for round in 1..=2 {
        peers.say("caller", "go").await;
        let results = recorded_results(peers.agent("caller"), "s").await;
        let results = &results[(round - 1) * 6..];
        let refused: Vec<_> = results.iter().filter(|one| one["error"].is_string()).collect();
        assert_eq!((results.len(), refused.len()), (6, 1), "{results:?}");
        assert_eq!(
            (&refused[0]["error"], &refused[0]["executed"]),
            (&json!("overloaded"), &json!("no"))
        );
        let text = refused[0]["text"].as_str().unwrap();
        assert!(text.contains("5 tasks at other agents are open already"), "{text}");
        let model = &peers.agent("worker").model;
        wait_until("five run", || model.asked().len() == round * 5).await;
        assert_eq!(peers.agent("worker").tasks().await.len(), round * 5, "no other was sent");
        gate.add_permits(5);
        assert_eq!(peers.follow_up().await.0.len(), 5, "the next round has free slots");
    }
}

#[tokio::test(start_paused = true)]
async fn caller_with_sixty_new_tasks_within_a_minute_is_refused() {
    let peers = Peers::start().await.with("worker", |_| Planned::Text("Done.")).await;
    let mut responses = peers.responses().await;
    for number in 0..60 {
        peers.request("worker", &task(&format!("t{number}"), "Do it.")).await;
        let result: AgentTaskResult = next(&mut responses).await;
        assert_eq!(result.text(), "Done.");
    }
    peers.request("worker", &task("more", "Do it.")).await;
    let refusal: AgentTaskError = next(&mut responses).await;
    assert_eq!((refusal.task_id.as_str(), refusal.code), ("more", AgentTaskErrorCode::Overloaded));
    assert_eq!((refusal.executed, refusal.is_retryable), (Executed::No, true));
    // A known task is no new one.
    peers.request("worker", &task("t0", "Do it.")).await;
    let again: AgentTaskResult = next(&mut responses).await;
    assert_eq!(again.task_id.as_str(), "t0");
    assert_eq!(peers.agent("worker").model.asked().len(), 60);
    tokio::time::advance(Duration::from_secs(60)).await;
    peers.request("worker", &task("more", "Do it.")).await;
    let result: AgentTaskResult = next(&mut responses).await;
    assert_eq!((result.task_id.as_str(), result.text().as_str()), ("more", "Done."));
}

#[tokio::test]
async fn greedy_tasks_at_other_agents_share_the_budget_of_the_message() {
    const MODEL_CALLS: u64 = 20;
    let greedy = |asked: &Asked| {
        if asked.must_answer {
            Planned::Text("As far as I came.")
        } else {
            Planned::Call("list_known_agents", json!({}))
        }
    };
    let plan = move |asked: &Asked| {
        let hand_out = |agent: &str| {
            ("invoke_agent", json!({"agent_name": agent, "skill": "ask", "message": "Find it."}))
        };
        match asked.results.len() {
            0 if asked.user.starts_with("go") => {
                Planned::Calls(["a", "b", "quick"].map(hand_out).into())
            }
            _ if asked.user.starts_with("go") => Planned::Text("I wait."),
            // The turn on the results may use the rest.
            _ if asked.must_answer => Planned::Text("All parts are read."),
            _ => Planned::Call("list_working", json!({})),
        }
    };
    let budget = BudgetLimits { model_calls: MODEL_CALLS, ..BudgetLimits::default() };
    let peers = Peers::start().await.with("a", greedy).await.with("b", greedy).await;
    let peers = peers.with("quick", |_| Planned::Text("Found.")).await;
    let mut peers = peers.with_budget(budget).with("caller", plan).await;
    assert_eq!(peers.say("caller", "go").await, "I wait.");
    let (tasks, text) = peers.follow_up().await;
    assert_eq!((tasks.len(), text.as_str()), (3, "All parts are read."));
    let calls = |agent: &str| peers.agent(agent).model.asked().len() as u64;
    let counted = calls("a") + calls("b") + calls("quick") + calls("caller");
    assert_eq!(counted, MODEL_CALLS, "what `quick` left is used by the turn on the results");
    let records = peers.agent("caller").tasks().await;
    for record in &records {
        let agent = record["peer"]["agent"].as_str().unwrap();
        assert_eq!(record["spent"]["modelCalls"], calls(agent), "{agent}");
        assert!(record["grant"]["model_calls"].as_u64() >= Some(calls(agent)), "{record}");
        let is_greedy = agent != "quick";
        assert_eq!(record["result"] == "As far as I came.", is_greedy, "{record}");
        assert_eq!(record["grant"]["model_calls"] == calls(agent), is_greedy, "{record}");
    }
    let reads = &peers.agent("caller").model.asked()[2].user;
    assert_eq!(reads.matches("\nAs far as I came.\n").count(), 2, "{reads}");
}

#[tokio::test]
async fn model_cancels_the_task_that_it_handed_out() {
    let gate = Arc::new(Semaphore::new(0));
    let plan = |asked: &Asked| {
        let named = asked.user.lines().next().and_then(|line| line.strip_prefix("stop "));
        match named {
            Some(id) if asked.results.is_empty() => {
                Planned::Call("cancel_agent_task", json!({"task_id": id}))
            }
            Some(_) => Planned::Text("Stopped."),
            None => asks_worker(asked),
        }
    };
    let worker = move |_: &Asked| gated(&gate, "Done.");
    let mut peers = Peers::start().await.with("worker", worker).await.with("caller", plan).await;
    peers.say("caller", "go").await;
    let caller = peers.agent("caller");
    let task = within_timeout("a task that began", async {
        loop {
            let task = caller.task_in(TaskState::Running).await;
            if task["peer"]["hasBegun"] == true {
                return TaskId::new(task["task"].as_str().unwrap()).unwrap();
            }
            yield_now().await;
        }
    })
    .await;
    let stop = format!("stop {task}");
    let result = || caller.model.asked().last().unwrap().results[0].clone();
    let unknown = format!("(tool failed: No open task '{task}'.)");
    peers.send("caller", &message("other", &stop)).await;
    assert_eq!(result(), unknown, "it is one of another conversation");
    peers.say("caller", &stop).await;
    assert_eq!(result(), format!("Task {task} cancelled; it had begun."));
    peers.agent("worker").task_in(TaskState::Cancelled).await;
    caller.task_in(TaskState::Cancelled).await;
    peers.say("caller", &stop).await;
    assert_eq!(result(), unknown);
    let further = async {
        while let Some(reply) = peers.unasked().await {
            if matches!(reply.body, ReplyBody::FollowUp { .. }) {
                return;
            }
        }
    };
    assert_never("a turn on the cancelled task", further).await;
}
