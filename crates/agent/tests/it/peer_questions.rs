//! Questions of agents about the tasks that were handed to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rockbot_bus::Consumer;
use rockbot_contracts::{
    AgentTaskError, AgentTaskErrorCode, AgentTaskRequest, AgentTaskResult, AgentTaskState,
    AgentTaskStatusUpdate, MessageId, TaskState,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    peer_harness::{Asked, Peers, Planned, gated, invoke, next, task},
    subagent_harness::lease_of_dead_process,
};

/// Asks which quarter, until the task names Q3.
fn asks_back(asked: &Asked) -> Planned {
    match asked.results.first() {
        None if asked.user.contains("Q3") => Planned::Text("Revenue grew in Q3."),
        None => Planned::Call("request_input", json!({"question": "Which quarter?"})),
        Some(_) => Planned::Text("Asked."),
    }
}

#[tokio::test]
async fn task_that_asks_continues_with_the_answer() {
    let peers = Peers::start().await.with("worker", asks_back).await;
    let mut responses = peers.responses().await;
    peers.request("worker", &task("t", "Report.")).await;
    let AgentTaskStatusUpdate { sequence, message, .. } = question(&mut responses).await;
    assert_eq!((sequence, message.unwrap().text().as_str()), (1, "Which quarter?"));
    peers.request("worker", &answer("Q3", Some("second"))).await;
    let result: AgentTaskResult = next(&mut responses).await;
    assert_eq!(result.text(), "Revenue grew in Q3.");
    assert_eq!(result.usage.unwrap().model_calls, 3, "of both turns");
}

/// Returns an answer to a question about the task `t`; without an id unless there is one.
fn answer(text: &str, id: Option<&str>) -> AgentTaskRequest {
    let mut answer = task("t", text);
    answer.message.message_id = id.map(|id| MessageId::new(id).unwrap());
    answer
}

/// Waits for the next question.
async fn question(responses: &mut Consumer) -> AgentTaskStatusUpdate {
    loop {
        let status: AgentTaskStatusUpdate = next(responses).await;
        if status.state == AgentTaskState::InputRequired {
            return status;
        }
    }
}

#[tokio::test]
async fn answer_is_read_after_the_death_of_the_process_that_asked() {
    let peers = Peers::start().await.with("worker", asks_back).await;
    let mut responses = peers.responses().await;
    peers.request("worker", &task("t", "Report.")).await;
    question(&mut responses).await;
    let worker = peers.agent("worker");
    let record = worker.task_in(TaskState::InputRequired).await;
    // The lease of that process is left, for its last seconds.
    let session = format!("agent-task-{}", record["task"].as_str().unwrap());
    let store = &worker.stores().store;
    let _left = lease_of_dead_process(store, "worker", &session, Duration::from_secs(1)).await;
    peers.request("worker", &answer("Q3", Some("second"))).await;
    let result: AgentTaskResult = next(&mut responses).await;
    assert_eq!(result.text(), "Revenue grew in Q3.");
}

#[tokio::test]
async fn two_questions_may_have_the_same_answer() {
    let turns = AtomicUsize::new(0);
    let plan = move |asked: &Asked| match asked.results.first() {
        Some(_) => Planned::Text("Asked."),
        None => match turns.fetch_add(1, Ordering::Relaxed) {
            0 => Planned::Call("request_input", json!({"question": "Really?"})),
            1 => Planned::Call("request_input", json!({"question": "Sure?"})),
            _ => Planned::Text("Done."),
        },
    };
    let peers = Peers::start().await.with("worker", plan).await;
    let mut responses = peers.responses().await;
    peers.request("worker", &task("t", "Report.")).await;
    for _ in 0..2 {
        question(&mut responses).await;
        peers.request("worker", &answer("Yes.", None)).await;
    }
    let result: AgentTaskResult = next(&mut responses).await;
    assert_eq!(result.text(), "Done.");
}

#[tokio::test]
async fn second_answer_to_a_question_is_refused() {
    let gate = Arc::new(Semaphore::new(0));
    let plan = {
        let gate = gate.clone();
        move |asked: &Asked| match asked.results.first() {
            None if asked.user.contains("Q3") => gated(&gate, "Revenue grew in Q3."),
            _ => asks_back(asked),
        }
    };
    let peers = Peers::start().await.with("worker", plan).await;
    let mut responses = peers.responses().await;
    peers.request("worker", &task("t", "Report.")).await;
    question(&mut responses).await;
    for id in ["second", "third"] {
        peers.request("worker", &answer(&format!("Q3, {id}"), Some(id))).await;
    }
    let refusal: AgentTaskError = next(&mut responses).await;
    assert_eq!(refusal.code, AgentTaskErrorCode::InvalidRequest);
    gate.add_permits(1);
    let result: AgentTaskResult = next(&mut responses).await;
    assert_eq!(result.text(), "Revenue grew in Q3.");
    assert_eq!(peers.agent("worker").model.asked().len(), 3);
}

/// Hands a report to `worker`, and reads its questions with `answer`.
fn root(asked: &Asked, answer: fn(&Asked) -> Planned) -> Planned {
    if asked.user.contains("asks about task") {
        answer(asked)
    } else if asked.user.contains("[Agent 'worker' answered") {
        Planned::Text("Here is the report.")
    } else if asked.user.contains("of agent 'worker' failed") {
        Planned::Text("It asked too much.")
    } else if asked.user.starts_with("report") && asked.results.is_empty() {
        invoke("worker", "Report.")
    } else {
        Planned::Text("I wait.")
    }
}

#[tokio::test]
async fn model_answers_the_question_of_an_agent() {
    let peers =
        Peers::start().await.with("caller", |asked| root(asked, |_| Planned::Text("Q3"))).await;
    let mut peers = peers.with("worker", asks_back).await;
    peers.say("caller", "report").await;
    assert_eq!(peers.follow_up().await.1, "Here is the report.");
    let asked = peers.agent("caller").model.asked();
    let question = asked.iter().find(|one| one.user.contains("asks about task")).unwrap();
    assert!(question.tools.contains(&"agent__ask_person".to_owned()));
    assert!(!question.tools.contains(&"invoke_agent".to_owned()));
}

#[tokio::test]
async fn user_answers_the_question_that_the_model_passes_on() {
    let peers = Peers::start().await.with("caller", |asked| {
        if asked.user.starts_with("the third") && asked.results.is_empty() {
            let task = asked.user.split_once('#').unwrap().1.split_whitespace().next().unwrap();
            return Planned::Call(
                "invoke_agent",
                json!({"agent_name": "worker", "skill": "ask", "message": "Q3", "task_id": task}),
            );
        }
        root(asked, |asked| match asked.results.first() {
            None => Planned::Call("agent__ask_person", json!({"question": "Which quarter?"})),
            Some(_) => Planned::Text("Which quarter do you mean?"),
        })
    });
    let mut peers = peers.await.with("worker", asks_back).await;
    peers.say("caller", "report").await;
    let (ended, text) = peers.follow_up().await;
    assert_eq!((ended.as_slice(), text.as_str()), (&[][..], "Which quarter do you mean?"));
    let record = peers.agent("caller").task_in(TaskState::InputRequired).await;
    let task = record["task"].as_str().unwrap();
    assert_eq!(peers.say("caller", &format!("the third #{task}")).await, "I wait.");
    assert_eq!(peers.follow_up().await.1, "Here is the report.");
}

#[tokio::test]
async fn same_question_three_times_ends_the_task() {
    let peers = Peers::start()
        .await
        .with("caller", |asked| root(asked, |_| Planned::Text("ask me again")))
        .await;
    let mut peers = peers.with("worker", asks_back).await;
    peers.say("caller", "report").await;
    assert_eq!(peers.follow_up().await.1, "It asked too much.");
    let asked = peers.agent("caller").model.asked();
    assert_eq!(asked.iter().filter(|one| one.user.contains("asks about task")).count(), 2);
    peers.agent("worker").task_in(TaskState::Cancelled).await;
    let record = peers.agent("caller").task_in(TaskState::Failed).await;
    assert!(record["result"].as_str().unwrap().contains("same question three times"));
}

#[tokio::test]
async fn twenty_questions_end_the_task() {
    let peers =
        Peers::start().await.with("caller", |asked| root(asked, |_| Planned::Text("Guess."))).await;
    let asked_before = AtomicUsize::new(0);
    let mut peers = peers
        .with("worker", move |asked| match asked.results.first() {
            None => {
                let number = asked_before.fetch_add(1, Ordering::Relaxed);
                Planned::Call("request_input", json!({"question": format!("Question {number}?")}))
            }
            Some(_) => Planned::Text("Asked."),
        })
        .await;
    peers.say("caller", "report").await;
    let (_, text) = peers.follow_up().await;
    assert_eq!(text, "It asked too much.");
    let record = peers.agent("caller").task_in(TaskState::Failed).await;
    assert!(record["result"].as_str().unwrap().contains("more than 20"), "{record}");
}
