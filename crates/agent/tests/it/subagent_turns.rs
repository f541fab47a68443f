//! Turns on results beside cancels and other turns, cancels of waiting sub-agents, whiteboards, and deletion.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{Agent, DelegationOptions};
use rockbot_contracts::{
    ConversationRequest, ConversationResponse, ReplyBody, SessionId, TaskState, user::TurnOutcome,
};
use rockbot_llm::ChatRequest;
use rockbot_memory::{MemoryOwner, WorkingMemory};
use rockbot_store::{Clock, ManualClock, Prefix, Stores};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    harness::{Behavior, ProbeTool, cancel, message, settle, text_events},
    subagent_harness::{
        Fleet, FunctionModel, call_all, exchange, follow_up, is_fold, is_sub_agent, root_script,
        say, tasks, tester,
    },
};

#[tokio::test(start_paused = true)]
async fn cancel_keeps_a_queued_turn_on_results() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let slow = ProbeTool::new("slow", Behavior::Hang);
    let model = FunctionModel::new({
        let gate = gate.clone();
        move |request| match is_sub_agent(request) {
            true => (text_events("Found."), Some(gate.clone())),
            false if exchange(request).0.starts_with("wait") => {
                (call_all(&[("slow", json!({}))]), None)
            }
            false => (root_script(request, 1), None),
        }
    });
    let _served = fleet.serve(fleet.agent(&model, &[&slow])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    let replies = client.send(&tester(), &message("s", "wait")).await.unwrap();
    slow.wait_for_call().await;
    gate.add_permits(1);
    let ended = within_timeout("its end", follow_ups.next()).await.unwrap();
    assert!(matches!(ended.body, ReplyBody::DelegationEnded { .. }), "{ended:?}");
    settle().await;
    let cancelled = client.send(&tester(), &cancel("s")).await.unwrap();
    for replies in [replies, cancelled] {
        let reply = within_timeout("an answer", replies.last()).await.unwrap();
        let ReplyBody::Answer { outcome, .. } = reply.body else { panic!("{reply:?}") };
        assert_eq!(outcome, TurnOutcome::Cancelled);
    }
    let (_, text, ..) = follow_up(&mut follow_ups).await;
    assert_eq!(text, "All parts are done.");
    assert_eq!(model.requests(false).iter().filter(|one| is_fold(one)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn results_of_two_responses_are_read_in_two_turns() {
    let (fleet, echo) = (Fleet::new(), ProbeTool::new("echo", Behavior::Echo));
    let gates = [(); 3].map(|()| Arc::new(Semaphore::new(0)));
    let model = FunctionModel::new({
        let gates = gates.clone();
        move |request| {
            let (text, results) = exchange(request);
            if is_sub_agent(request) {
                let second = usize::from(text.contains("go second"));
                return (text_events("Found."), Some(gates[second].clone()));
            }
            if !is_fold(request) {
                return (root_script(request, 1), None);
            }
            if results.is_empty() {
                return (call_all(&[("echo", json!({}))]), Some(gates[2].clone()));
            }
            (text_events("One part is done."), None)
        }
    });
    let _served = fleet.serve(fleet.agent(&model, &[&echo])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go first").await;
    say(&client, "go second").await;
    let folds = || model.requests(false).iter().filter(|one| is_fold(one)).count();
    gates[0].add_permits(1);
    wait_until("the first result is read", || folds() == 1).await;
    gates[1].add_permits(1);
    settle().await;
    gates[2].add_permits(2);
    let first = follow_up(&mut follow_ups).await.0;
    let second = follow_up(&mut follow_ups).await.0;
    assert_eq!((first.len(), second.len(), folds()), (1, 1, 4));
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn waiting_sub_agent_is_cancelled_at_once() {
    let options = DelegationOptions { max_tasks: 1, ..DelegationOptions::default() };
    let (fleet, gate) = (Fleet { options, ..Fleet::new() }, Arc::new(Semaphore::new(0)));
    let model = FunctionModel::gated(2, &gate);
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    wait_until("one runs", || model.requests(true).len() == 1).await;
    let all = tasks(&client).await;
    let waiting = all.iter().find(|task| task.state == TaskState::Submitted).unwrap();
    let request = ConversationRequest::CancelTask { task_id: waiting.task_id.clone() };
    let started = tokio::time::Instant::now();
    let response = client.request(&tester(), &request).await.unwrap();
    let ConversationResponse::Task { task, .. } = response else { panic!("{response:?}") };
    assert_eq!(task.state, TaskState::Cancelled);
    assert!(started.elapsed() < Duration::from_secs(2), "after {:?}", started.elapsed());
    gate.add_permits(2);
    let (ids, ..) = follow_up(&mut follow_ups).await;
    assert_eq!((ids.len(), model.requests(true).len()), (1, 1));
}

#[tokio::test]
async fn deletion_includes_sub_agents_whose_records_have_expired() {
    for (days, hours) in [(0, 25), (8, 0)] {
        let clock = ManualClock::new();
        let fleet = Fleet { stores: Stores::memory(Clock::from(&clock)), ..Fleet::new() };
        let gate = Arc::new(Semaphore::new(1));
        let model = FunctionModel::gated(1, &gate);
        let agent: Agent = fleet.agent(&model, &[]);
        let _served = fleet.serve(agent.clone()).await;
        let (client, mut follow_ups) = fleet.client("proxy").await;
        say(&client, "go").await;
        follow_up(&mut follow_ups).await;
        let prefix = Prefix::new(["conversation"]).unwrap();
        let logs = async || fleet.stores.log.logs(&prefix, None, 100).await.unwrap().len();
        assert_eq!(logs().await, 2);
        clock.advance(Duration::from_secs((days * 24 + hours) * 3600));
        let session = SessionId::new("s").unwrap();
        assert!(agent.delete_conversation(&session).await.unwrap());
        assert_eq!(logs().await, 0, "after {days} days and {hours} hours");
    }
}

#[tokio::test]
async fn whiteboard_is_shared_with_the_conversation_and_named_in_the_result() {
    let memory = WorkingMemory::new(Stores::memory(Clock::System).store);
    let fleet = Fleet { memory: Some(memory.clone()), ..Fleet::new() };
    let key = |request: &ChatRequest| {
        format!("{}/table", request.session.replacen("subagent-", "subagent/", 1))
    };
    let model = FunctionModel::new(move |request| match is_sub_agent(request) {
        true if exchange(request).1.is_empty() => {
            let data = json!({"key": key(request), "data": "rows"});
            (call_all(&[("save_to_working_memory", data)]), None)
        }
        true => (text_events("Found."), None),
        false => (root_script(request, 1), None),
    });
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    let (ids, ..) = follow_up(&mut follow_ups).await;
    let (read, _) = exchange(&model.requests(false)[2]);
    let key = format!("subagent/{}/table", ids[0]);
    assert!(read.contains(&format!("Whiteboard: 1 entries under subagent/{}/ ({key}).", ids[0])));
    let owner =
        |session: &str| MemoryOwner { agent: tester(), session: SessionId::new(session).unwrap() };
    assert_eq!(memory.get(&owner("s"), &key).await.unwrap().as_deref(), Some("rows"));
    assert!(memory.get(&owner("other"), &key).await.is_err());
}
