//! Calls of a model and requests of a user about sub-agents: lists, cancels, and the tools that are passed on.

use std::sync::Arc;

use rockbot_agent::{ConversationRequestError, ExecutionStrategy};
use rockbot_contracts::{
    ConversationRequest, ConversationResponse, TaskId, TaskState, TaskSummary,
    conversation::ConversationErrorCode,
};
use rockbot_llm::{ChatEvent, ChatRequest};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::ToolFilter;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    harness::{Behavior, ProbeTool, message, text_events},
    subagent_harness::{
        Fleet, FunctionModel, call_all, exchange, follow_up, is_sub_agent, root_script, say, tasks,
        tester, wait_for_tasks,
    },
};

/// Lists the sub-agents and cancels those that the message `stop …` names.
fn stop_script(request: &ChatRequest) -> Vec<ChatEvent> {
    let (text, results) = exchange(request);
    let named = text.lines().next().and_then(|line| line.strip_prefix("stop "));
    let Some(named) = named.filter(|_| results.is_empty()) else {
        return root_script(request, 2);
    };
    let list = ("list_subagents", json!({}));
    let cancels = named.split(' ').map(|task| ("cancel_subagent", json!({"task_id": task})));
    let calls: Vec<_> = [list.clone()].into_iter().chain(cancels).chain([list]).collect();
    call_all(&calls)
}

#[tokio::test]
async fn model_lists_and_cancels_the_sub_agents_of_its_conversation() {
    let strategy = ExecutionStrategy::Sequential;
    let (fleet, gate) = (Fleet { strategy, ..Fleet::new() }, Arc::new(Semaphore::new(0)));
    let model = FunctionModel::new({
        let gate = gate.clone();
        move |request| match is_sub_agent(request) {
            true if exchange(request).1.is_empty() => {
                (call_all(&[("report_progress", json!({"message": "half done"}))]), None)
            }
            true => (text_events("Found."), Some(gate.clone())),
            false => (stop_script(request), None),
        }
    });
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    wait_until("both reported", || model.requests(true).len() == 4).await;
    let have_reported =
        |tasks: &[TaskSummary]| tasks.iter().all(|task| !task.last_report.is_empty());
    let started = wait_for_tasks(&client, "recorded reports", have_reported).await;
    let (first, second) = (&started[0], &started[1]);
    let results = || exchange(model.requests(false).last().unwrap()).1;
    let unknown =
        |task: &str| format!("(tool failed: No active subagent found with task_id '{task}'.)");
    let stop = format!("stop {} ghost", first.task_id);

    // Another conversation does not know them.
    let replies = client.send(&tester(), &message("other", &stop)).await.unwrap();
    within_timeout("an answer", replies.last()).await.unwrap();
    let none = "No active subagents.".to_owned();
    let refused = [none.clone(), unknown(first.task_id.as_str()), unknown("ghost"), none.clone()];
    assert_eq!(results(), refused);

    let (_, usage) = say(&client, &stop).await;
    let [before, cancelled, ghost, after]: [String; 4] =
        results().try_into().expect("four results");
    assert!(before.starts_with("Active subagents (2):\n- task_id="), "{before}");
    for task in [first, second] {
        let described = format!("description={}, last report: half done", task.description);
        assert!(before.contains(task.task_id.as_str()) && before.contains(&described), "{before}");
    }
    assert_eq!(cancelled, format!("Subagent {} cancelled.", first.task_id));
    assert_eq!(ghost, unknown("ghost"));
    assert!(after.starts_with("Active subagents (1):"), "{after}");
    assert!(after.contains(second.task_id.as_str()), "{after}");
    assert!(!after.contains(first.task_id.as_str()), "{after}");
    assert_eq!(usage.unwrap().children.model_calls, 1, "the answer to the cancelled one");
    let state = async |number: usize| tasks(&client).await[number].state;
    assert_eq!((state(0).await, state(1).await), (TaskState::Cancelled, TaskState::Running));

    gate.add_permits(2);
    let (ids, ..) = follow_up(&mut follow_ups).await;
    assert_eq!(ids, std::slice::from_ref(&second.task_id), "no turn reads the cancelled one");
    say(&client, &format!("stop {}", second.task_id)).await;
    assert_eq!(results(), [none.clone(), unknown(second.task_id.as_str()), none]);
    assert_eq!(state(1).await, TaskState::Completed);
}

#[tokio::test]
async fn tool_filter_of_the_agent_binds_its_sub_agents() {
    let filter = ToolFilter { deny: vec!["secret".to_owned()], ..ToolFilter::default() };
    let fleet = Fleet { filter, ..Fleet::new() };
    let tools = [ProbeTool::new("secret", Behavior::Echo), ProbeTool::new("echo", Behavior::Echo)];
    let model = FunctionModel::new(|request| match is_sub_agent(request) {
        true if exchange(request).1.is_empty() => {
            (call_all(&[("secret", json!({})), ("echo", json!({}))]), None)
        }
        true => (text_events("Found."), None),
        false => (root_script(request, 1), None),
    });
    let _served = fleet.serve(fleet.agent(&model, &[&tools[0], &tools[1]])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    follow_up(&mut follow_ups).await;
    let requests = model.requests(true);
    let offers = |name: &str| requests[0].tools.iter().any(|tool| tool.name == name);
    assert_eq!((offers("secret"), offers("echo")), (false, true));
    let (_, results) = exchange(&requests[1]);
    assert!(results[0].contains("tool failed"), "{results:?}");
    assert_eq!((tools[0].calls(), tools[1].calls()), (0, 1));
}

#[tokio::test]
async fn user_lists_shows_and_cancels_running_work() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = FunctionModel::new({
        let gate = gate.clone();
        move |request| match is_sub_agent(request) {
            true if exchange(request).1.is_empty() => (call_all(&[("echo", json!({}))]), None),
            true => (text_events("Found."), Some(gate.clone())),
            false => (root_script(request, 2), None),
        }
    });
    let _served = fleet.serve(fleet.agent(&model, &[&echo])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    wait_until("both wait", || model.requests(true).len() == 4).await;
    let calls = |task: &TaskSummary| task.usage.map(|usage| (usage.model_calls, usage.tool_calls));
    let listed = tasks(&client).await;
    // Their order is that of their start, which may be the same millisecond.
    let mut described: Vec<_> = listed.iter().map(|task| task.description.as_str()).collect();
    described.sort_unstable();
    assert_eq!(described, ["part 1", "part 2"]);
    for task in &listed {
        assert_eq!((task.state, task.ended_ms), (TaskState::Running, None));
        assert_eq!(calls(task), Some((1, 1)), "its spending so far");
    }
    let (first, second) = (listed[0].task_id.clone(), listed[1].task_id.clone());
    let request = async |request: ConversationRequest| client.request(&tester(), &request).await;
    let shown = async |task_id| match request(ConversationRequest::Task { task_id }).await {
        Ok(ConversationResponse::Task { task, result }) => (task, result),
        other => panic!("{other:?}"),
    };
    assert_eq!(shown(first.clone()).await, (listed[0].clone(), String::new()));
    let cancel = ConversationRequest::CancelTask { task_id: first.clone() };
    let Ok(ConversationResponse::Task { task, .. }) = request(cancel.clone()).await else {
        panic!("no task")
    };
    assert_eq!((task.state, task.task_id.clone()), (TaskState::Cancelled, first.clone()));
    assert!(calls(&task) >= Some((1, 1)) && task.ended_ms.is_some(), "{task:?}");
    gate.add_permits(1);
    follow_up(&mut follow_ups).await;
    let (completed, result) = shown(second).await;
    assert_eq!((completed.state, result.as_str()), (TaskState::Completed, "Found."));
    assert_eq!(calls(&completed), Some((2, 1)));
    // A cancel of ended work changes nothing.
    let again = request(cancel).await;
    let Ok(ConversationResponse::Task { task: same, .. }) = again else { panic!("{again:?}") };
    assert_eq!(same, task);
    let task_id = TaskId::new("ghost").unwrap();
    for unknown in [
        ConversationRequest::Task { task_id: task_id.clone() },
        ConversationRequest::CancelTask { task_id },
    ] {
        let refused = request(unknown).await;
        let Err(ConversationRequestError::Refused { code, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(code, ConversationErrorCode::NotFound);
    }
}
