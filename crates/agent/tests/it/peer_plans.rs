//! Tasks for other agents in plans and batches.

use std::sync::Arc;

use rockbot_agent::A2aRules;
use rockbot_contracts::TaskState;
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    harness::{cancel, message},
    peer_harness::{Asked, Peers, Planned, gated, invoke},
};

fn step(id: &str, agent: &str, message: &str) -> Value {
    json!({"id": id, "mode": "Direct", "gateway": "A2A", "agent": agent, "skill": "ask",
        "message": message})
}

/// Runs plans when the user says `go`, and then answers.
fn runs(plans: Value) -> impl Fn(&Asked) -> Planned + Send + Sync + 'static {
    move |asked| {
        if asked.user.starts_with("go") && asked.results.is_empty() {
            Planned::Call("spawn_wisps", json!({"definitions": plans}))
        } else {
            Planned::Text("Done.")
        }
    }
}

/// Returns the result of the last call of `caller`.
fn last_result(peers: &Peers) -> String {
    let asked = peers.agent("caller").model.asked();
    asked.last().unwrap().results.last().expect("a result").clone()
}

#[tokio::test]
async fn plan_waits_for_the_results_of_other_agents() {
    let steps =
        [step("find", "worker", "Find it."), step("say", "helper", "{{steps.find.result}}")];
    let plans = json!([
        {"description": "Two agents", "steps": steps},
        {"description": "No agent", "steps": [step("a", "ghost", "x")]},
    ]);
    let peers = Peers::start().await.with("worker", |_| Planned::Text("Under the table.")).await;
    let peers = peers.with("helper", |_| Planned::Text("It was simple.")).await;
    let peers = peers.with("caller", runs(plans)).await;
    assert_eq!(peers.say("caller", "go").await, "Done.");
    let text = last_result(&peers);
    assert!(text.contains("2 wisp(s) completed (1 succeeded, 1 failed, "), "{text}");
    assert!(text.contains("It was simple."), "{text}");
    assert!(text.contains("Error (Structural): ") && text.contains("'ghost'"), "{text}");
    let helper = peers.agent("helper").model.asked();
    assert!(helper[0].user.contains("Under the table."), "{}", helper[0].user);
    let tasks = peers.agent("caller").tasks().await;
    assert_eq!(tasks.len(), 2);
    for task in tasks {
        assert_eq!(task["state"], TaskState::Completed.as_str());
        assert_eq!(task["spent"]["modelCalls"], 1);
    }
    // No turn reads the results again.
    assert_eq!(peers.agent("caller").model.asked().len(), 2);
}

#[tokio::test]
async fn cancelled_plan_cancels_the_task_of_its_step() {
    let gate = Arc::new(Semaphore::new(0));
    let plans = json!({"description": "One agent", "steps": [step("a", "worker", "Find it.")]});
    let peers = Peers::start().await.with("worker", move |_| gated(&gate, "Done.")).await;
    let peers = peers.with("caller", runs(plans)).await;
    let turn = async { peers.say("caller", "go").await };
    let cancelled = async {
        peers.agent("worker").task_in(TaskState::Running).await;
        peers.send("caller", &cancel("s")).await;
        peers.agent("worker").task_in(TaskState::Cancelled).await;
        peers.agent("caller").task_in(TaskState::Cancelled).await;
    };
    tokio::join!(turn, cancelled);
}

#[tokio::test]
async fn repeated_step_with_another_message_gets_no_earlier_result() {
    let gate = Arc::new(Semaphore::new(0));
    // Its result has the time of the last announcement, which another process receives later.
    let look = json!({"id": "look", "mode": "Direct", "tool": "list_known_agents"});
    let steps = [look, step("ask", "worker", "Find it: {{steps.look.result}}")];
    let plans = json!({"description": "Two steps", "steps": steps});
    let peers = Peers::start().await.with("worker", move |_| gated(&gate, "An old answer.")).await;
    let mut peers = peers.with("caller", runs(plans)).await;
    let replies = peers.begin("caller", &message("s", "go")).await;
    peers.agent("worker").task_in(TaskState::Running).await;
    let killed = peers.agents.remove("caller").expect("it runs");
    let (model, stores) = (killed.model.clone(), killed.stores().clone());
    drop(killed);
    let rules = A2aRules { expose: true, ..A2aRules::default() };
    let next = peers.run("caller", rules, &model, &stores, "caller-2").await;
    let reply = within_timeout("an answer", replies.last()).await.unwrap();
    assert!(format!("{reply:?}").contains("Done."), "{reply:?}");
    let result = model.asked().last().unwrap().results[0].clone();
    assert!(result.contains("Error (External): "), "{result}");
    assert!(result.contains("an earlier attempt of the call had another request"), "{result}");
    peers.agent("worker").task_in(TaskState::Cancelled).await;
    next.task_in(TaskState::Cancelled).await;
    assert_eq!(peers.agent("worker").model.asked().len(), 1, "nothing else was sent");
}

#[tokio::test]
async fn question_fails_the_step_and_can_be_answered() {
    let plans = json!({"description": "One agent", "steps": [step("a", "worker", "Report.")]});
    let plan = move |asked: &Asked| match asked.results.as_slice() {
        [] => Planned::Call("spawn_wisps", json!({"definitions": plans})),
        [failed] => {
            let (_, task) = failed.split_once("with task_id ").expect("the task of the question");
            let task = task.split(',').next();
            Planned::Call(
                "invoke_agent",
                json!({"agent_name": "worker", "skill": "ask", "message": "Q3", "task_id": task}),
            )
        }
        _ => Planned::Text("Done."),
    };
    let asks_back = |asked: &Asked| match asked.results.first() {
        None if asked.user.contains("Q3") => Planned::Text("Revenue grew in Q3."),
        None => Planned::Call("request_input", json!({"question": "Which quarter?"})),
        Some(_) => Planned::Text("Asked."),
    };
    let peers = Peers::start().await.with("worker", asks_back).await.with("caller", plan).await;
    assert_eq!(peers.say("caller", "go").await, "Done.");
    let asked = peers.agent("caller").model.asked();
    let results = &asked.last().unwrap().results;
    assert!(results[0].contains("Error (External): "), "{}", results[0]);
    assert!(results[0].contains("Which quarter?"), "{}", results[0]);
    assert!(results[1].contains("Revenue grew in Q3."), "{}", results[1]);
    peers.agent("caller").task_in(TaskState::Completed).await;
}

#[tokio::test]
async fn batch_hands_out_several_tasks() {
    let plan = |asked: &Asked| {
        if asked.user.starts_with("go") && asked.results.is_empty() {
            let call = |id: u32, agent: &str, tool: &str| {
                let task = json!({"agent_name": agent, "skill": "ask", "message": "Find it."});
                json!({"id": id, "tool": tool, "parameters": task})
            };
            let calls = [
                call(1, "worker", "invoke_agent"),
                call(2, "helper", "invoke_agent"),
                call(3, "ghost", "invoke_agent"),
                call(4, "worker", "spawn_subagent"),
            ];
            Planned::Call("agent__batch", json!({"calls": calls}))
        } else {
            Planned::Text("Done.")
        }
    };
    let peers = Peers::start().await.with("worker", |_| Planned::Text("Under the table.")).await;
    let peers = peers.with("helper", |_| Planned::Text("In the attic.")).await;
    let mut peers = peers.with("caller", plan).await;
    peers.say("caller", "go").await;
    let asked = peers.agent("caller").model.asked();
    let result: Value = serde_json::from_str(&asked[1].results[0]).unwrap();
    let results = result["results"].as_array().unwrap();
    let outputs = results[..2].iter().map(|one| one["output"].as_str().unwrap_or_default());
    assert!(outputs.into_iter().all(|text| text.starts_with("Task dispatched")), "{result}");
    assert_eq!(results[2]["error"]["code"], "EXECUTION_ERROR", "{result}");
    assert_eq!(results[3]["error"]["code"], "INTERNAL_NOT_ALLOWED", "{result}");
    assert_eq!(peers.follow_up().await.0.len(), 2, "one turn reads both results");
    let asked = peers.agent("caller").model.asked();
    let read = &asked.last().unwrap().user;
    assert!(read.contains("Under the table.") && read.contains("In the attic."), "{read}");
}

#[tokio::test]
async fn turn_on_a_result_asks_no_agents_in_plans_and_batches() {
    let plan = |asked: &Asked| {
        let task = json!({"agent_name": "helper", "skill": "ask", "message": "Go on."});
        let is_on_result = asked.user.contains("[Agent 'worker' answered");
        match asked.results.len() {
            0 if asked.user.starts_with("go") => invoke("worker", "Find it."),
            0 if is_on_result => {
                let steps = json!([step("a", "helper", "Go on.")]);
                let plans = json!({"description": "One agent", "steps": steps});
                let calls = json!([{"id": 1, "tool": "invoke_agent", "parameters": task}]);
                Planned::Calls(vec![
                    ("spawn_wisps", json!({"definitions": plans})),
                    ("agent__batch", json!({"calls": calls})),
                ])
            }
            _ => Planned::Text("Done."),
        }
    };
    let peers = Peers::start().await.with("worker", |_| Planned::Text("Under the table.")).await;
    let peers = peers.with("helper", |_| Planned::Text("Never.")).await;
    let mut peers = peers.with("caller", plan).await;
    peers.say("caller", "go").await;
    assert_eq!(peers.follow_up().await.1, "Done.");
    let asked = peers.agent("caller").model.asked();
    let results = &asked.last().unwrap().results;
    assert_eq!(results.len(), 2);
    assert!(results[0].contains("Error (Structural): "), "{}", results[0]);
    assert!(results[1].contains("\"ok\":false"), "{}", results[1]);
    assert!(peers.agent("helper").model.asked().is_empty());
}
