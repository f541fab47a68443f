//! Messages about tasks that arrive twice, after another end of the task, or late.

use std::{sync::Arc, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use rockbot_contracts::{
    AgentTaskError, AgentTaskErrorCode, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate,
    Executed, ReplyBody, TaskId, TaskMessage, TaskState, topology::agent_response,
};
use rockbot_store::ManualClock;
use rockbot_testkit::fixture::{assert_never, within_timeout};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    harness::cancel,
    peer_harness::{Asked, Peer, Peers, Planned, gated, name, next, task, waiting_for_worker},
};

const HOUR: Duration = Duration::from_secs(3600);

fn result(task: &TaskId, text: &str) -> AgentTaskResult {
    AgentTaskResult {
        task_id: task.clone(),
        state: AgentTaskState::Completed,
        artifacts: Vec::new(),
        message: Some(TaskMessage::new(TaskMessage::AGENT, text, None)),
        usage: None,
    }
}

fn error(task: &TaskId, code: AgentTaskErrorCode) -> AgentTaskError {
    let (message, is_retryable, executed) = ("failed".to_owned(), false, Executed::Yes);
    AgentTaskError { task_id: task.clone(), code, message, is_retryable, executed, usage: None }
}

fn task_of(record: &Value) -> TaskId {
    TaskId::new(record["task"].as_str().unwrap()).unwrap()
}

/// Waits until the only task of `caller` runs at the other agent.
async fn begun_task(caller: &Peer) -> TaskId {
    within_timeout("a task that began", async {
        loop {
            if let [task] = caller.tasks().await.as_slice()
                && task["state"] == TaskState::Running.as_str()
                && task["peer"]["hasBegun"] == true
            {
                return task_of(task);
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Sets the time limit of the only task of `caller`, which runs, to `time` before its start.
async fn expire(caller: &Peer, time: Duration) -> TaskId {
    let task = begun_task(caller).await;
    let ms = u64::try_from(time.as_millis()).unwrap();
    let change = |record: &mut Value| {
        record["deadline"] = json!(record["created"].as_u64().unwrap() - ms);
    };
    caller.change(&task, change).await;
    task
}

/// Returns a recorder of the metrics of a test, and its reader.
fn recorder() -> (DebuggingRecorder, Snapshotter) {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    (recorder, metrics)
}

/// Waits until a counter has this value. Counters with another label than `reason` are not counted.
async fn wait_for_counter(metrics: &Snapshotter, name: &str, reason: Option<&str>, expected: u64) {
    let mut counted = 0;
    let all = async {
        while counted < expected {
            tokio::task::yield_now().await;
            for (key, _, _, value) in metrics.snapshot().into_vec() {
                let label = key.key().labels().find(|label| label.key() == "reason");
                if key.key().name() == name
                    && label.map(metrics::Label::value) == reason
                    && let DebugValue::Counter(count) = value
                {
                    counted += count;
                }
            }
        }
    };
    within_timeout(name, all).await;
    assert_eq!(counted, expected, "{name}");
}

/// Waits until the agents dropped this number of responses to tasks that had ended.
async fn wait_for_duplicates(metrics: &Snapshotter, expected: u64) {
    wait_for_counter(metrics, "rockbot_agent_peer_duplicates_total", None, expected).await;
}

/// Checks that the user gets no further answer on a result.
async fn assert_no_follow_up(peers: &mut Peers) {
    let further = async {
        while let Some(reply) = peers.unasked().await {
            if matches!(reply.body, ReplyBody::FollowUp { .. }) {
                return;
            }
        }
    };
    assert_never("another answer", further).await;
}

#[tokio::test]
async fn repeated_request_runs_once() {
    let (gate, clock) = (Arc::new(Semaphore::new(0)), ManualClock::new());
    let plan = {
        let gate = gate.clone();
        move |_: &Asked| gated(&gate, "Done.")
    };
    let peers = Peers::start().await.with_clock((&clock).into()).with("worker", plan).await;
    let mut responses = peers.responses().await;
    for _ in 0..3 {
        peers.request("worker", &task("t", "Do it.")).await;
    }
    let status: AgentTaskStatusUpdate = next(&mut responses).await;
    assert_eq!(status.state, AgentTaskState::Working);
    let other = task("t", "Do something else.");
    peers.request("worker", &other).await;
    let refusal: AgentTaskError = next(&mut responses).await;
    assert_eq!(refusal.code, AgentTaskErrorCode::InvalidRequest);
    gate.add_permits(10);
    let ended: AgentTaskResult = next(&mut responses).await;
    assert_eq!(ended.text(), "Done.");
    assert_eq!(ended.usage.unwrap().model_calls, 1);
    for later in [Duration::from_millis(1), HOUR] {
        clock.advance(later);
        peers.request("worker", &task("t", "Do it.")).await;
        let again: AgentTaskResult = next(&mut responses).await;
        assert_eq!(again, ended, "after {later:?}");
        peers.request("worker", &other).await;
        let refusal: AgentTaskError = next(&mut responses).await;
        assert_eq!(refusal.code, AgentTaskErrorCode::InvalidRequest, "after {later:?}");
    }
    assert_eq!(peers.agent("worker").model.asked().len(), 1);
}

/// Publishes responses of the worker to a task.
async fn respond(peers: &Peers, task: &TaskId, texts: &[&str]) {
    for text in texts {
        let to = agent_response(&name("caller"));
        peers.publish(to, &result(task, text), "worker").await;
    }
}

#[tokio::test]
async fn first_end_of_a_task_counts() {
    let (recorder, metrics) = recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut peers = waiting_for_worker().await;
    let task = begun_task(peers.agent("caller")).await;
    respond(&peers, &task, &["first", "second"]).await;
    let failed = error(&task, AgentTaskErrorCode::ExecutionFailed);
    peers.publish(agent_response(&name("caller")), &failed, "worker").await;
    assert_eq!(peers.follow_up().await.1, "The worker found it.");
    let reads = peers.agent("caller").model.asked();
    assert!(reads.last().unwrap().user.contains("\nfirst\n"));
    wait_for_duplicates(&metrics, 2).await;
    assert_no_follow_up(&mut peers).await;
}

#[tokio::test]
async fn responses_of_a_third_agent_are_dropped_and_counted() {
    let (recorder, metrics) = recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut peers = waiting_for_worker().await;
    let task = begun_task(peers.agent("caller")).await;
    let to = || agent_response(&name("caller"));
    let failed = error(&task, AgentTaskErrorCode::ExecutionFailed);
    peers.publish_validated(to(), &result(&task, "forged"), "mallory").await;
    peers.publish_validated(to(), &failed, "mallory").await;
    let dropped = "rockbot_agent_peer_responses_dropped_total";
    wait_for_counter(&metrics, dropped, Some("foreign"), 2).await;
    let record = peers.agent("caller").task_in(TaskState::Running).await;
    assert_eq!(record["result"], "");
    respond(&peers, &task, &["found"]).await;
    assert_eq!(peers.follow_up().await.1, "The worker found it.");
    let read = peers.agent("caller").model.asked().last().unwrap().user.clone();
    assert!(read.contains("\nfound\n") && !read.contains("forged"), "{read}");
}

#[tokio::test]
async fn result_after_an_error_is_a_duplicate() {
    let (recorder, metrics) = recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut peers = waiting_for_worker().await;
    let task = begun_task(peers.agent("caller")).await;
    let failed = error(&task, AgentTaskErrorCode::ExecutionFailed);
    peers.publish(agent_response(&name("caller")), &failed, "worker").await;
    respond(&peers, &task, &["found"]).await;
    assert_eq!(peers.follow_up().await.1, "The worker failed.");
    wait_for_duplicates(&metrics, 1).await;
    assert_no_follow_up(&mut peers).await;
    let record = peers.agent("caller").task_in(TaskState::Failed).await;
    assert_eq!(record["result"], "failed");
    assert_eq!(record["spent"]["modelCalls"], record["grant"]["model_calls"], "none was reported");
}

#[tokio::test]
async fn result_after_a_cancel_is_a_duplicate() {
    let (recorder, metrics) = recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut peers = waiting_for_worker().await;
    let task = begun_task(peers.agent("caller")).await;
    peers.send("caller", &cancel("s")).await;
    peers.agent("caller").task_in(TaskState::Cancelled).await;
    respond(&peers, &task, &["found"]).await;
    wait_for_duplicates(&metrics, 1).await;
    assert_no_follow_up(&mut peers).await;
    let record = peers.agent("caller").task_in(TaskState::Cancelled).await;
    assert_ne!(record["result"], "found");
}

#[tokio::test]
async fn result_after_the_time_limit_is_read_as_late() {
    for (after, minutes) in [(Duration::from_secs(600), 11), (23 * HOUR, 23 * 60 + 1)] {
        let (recorder, metrics) = recorder();
        let _recorded = metrics::set_default_local_recorder(&recorder);
        let mut peers = waiting_for_worker().await;
        let task = expire(peers.agent("caller"), after).await;
        assert_eq!(peers.follow_up().await.1, "The worker failed.");
        let record = peers.agent("caller").task_in(TaskState::Expired).await;
        let (spent, grant) = (&record["spent"], &record["grant"]);
        assert_eq!(spent["modelCalls"], grant["model_calls"], "the agent may spend all of it");
        let expired = error(&task, AgentTaskErrorCode::Expired);
        peers.publish(agent_response(&name("caller")), &expired, "worker").await;
        respond(&peers, &task, &["found at last"]).await;
        assert_eq!(peers.follow_up().await.1, "It is late.");
        let reads = peers.agent("caller").model.asked();
        let late = reads.last().unwrap();
        let heading = format!("for task {task}, {minutes} minutes after its time was over");
        assert!(late.user.contains(&heading), "{}", late.user);
        assert!(late.user.contains("\nfound at last\n"), "{}", late.user);
        assert!(!late.tools.contains(&"invoke_agent".to_owned()));
        respond(&peers, &task, &["again"]).await;
        // With the error.
        wait_for_duplicates(&metrics, 2).await;
        assert_no_follow_up(&mut peers).await;
    }
}

#[tokio::test]
async fn result_after_a_day_is_counted_and_not_read() {
    let (recorder, metrics) = recorder();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut peers = waiting_for_worker().await;
    let task = expire(peers.agent("caller"), 25 * HOUR).await;
    assert_eq!(peers.follow_up().await.1, "The worker failed.");
    respond(&peers, &task, &["too late"]).await;
    wait_for_duplicates(&metrics, 1).await;
    assert_no_follow_up(&mut peers).await;
}

#[tokio::test]
async fn late_result_of_the_second_task_of_a_response_is_read() {
    let plan = |asked: &Asked| {
        if asked.user.starts_with("go") && asked.results.is_empty() {
            let task = json!({"agent_name": "worker", "skill": "ask", "message": "Find it."});
            Planned::Calls(vec![("invoke_agent", task.clone()), ("invoke_agent", task)])
        } else if asked.user.contains("A late result") {
            Planned::Text("It is late.")
        } else {
            Planned::Text("I wait.")
        }
    };
    let gate = Arc::new(Semaphore::new(0));
    let peers = Peers::start().await.with("caller", plan).await;
    let mut peers = peers.with("worker", move |_| gated(&gate, "Done.")).await;
    peers.say("caller", "go").await;
    let caller = peers.agent("caller");
    let tasks: Vec<_> = caller.tasks().await.iter().map(task_of).collect();
    for task in &tasks {
        caller.change(task, |record| record["deadline"] = record["created"].clone()).await;
    }
    assert_eq!(peers.follow_up().await.0.len(), 2, "both are read in one turn");
    for task in &tasks {
        respond(&peers, task, &["found"]).await;
        assert_eq!(peers.follow_up().await, (vec![task.clone()], "It is late.".to_owned()));
    }
}
