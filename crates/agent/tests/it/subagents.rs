//! Sub-agents: their limits, their results, and processes that die meanwhile.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::FutureExt;
use rockbot_agent::{Approvals, DelegationOptions};
use rockbot_bus::MemoryBus;
use rockbot_contracts::{
    AgentReply, ApprovalAnswer, ApprovalDecision, ConversationRequest, ConversationResponse,
    ReplyBody, TaskState, user::TurnOutcome,
};
use rockbot_llm::ChatRequest;
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::ApprovalSection;
use serde_json::json;
use tokio::{sync::Semaphore, task::yield_now};

use crate::{
    harness::{Behavior, ProbeTool, cancel, text_events},
    subagent_harness::{
        Fleet, FunctionModel, call_all, exchange, follow_up, is_sub_agent, lease_of_dead_process,
        root_script, say, tasks, tester,
    },
};

#[tokio::test]
async fn limit_of_running_sub_agents_is_kept() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let model = FunctionModel::gated(50, &gate);
    let agent = fleet.agent(&model, &[]);
    let _served = fleet.serve(agent).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    assert_eq!(say(&client, "go").await.0, "Started.");
    let (_, results) = exchange(&model.requests(false)[1]);
    let refused = results
        .iter()
        .filter(|text| text.contains("Error: maximum concurrent subagents (3) already running."));
    assert_eq!((results.len(), refused.count()), (50, 47));
    wait_until("three run", || model.requests(true).len() == 3).await;
    gate.add_permits(3);
    let (ids, text, usage, before) = follow_up(&mut follow_ups).await;
    assert_eq!((ids.len(), text.as_str()), (3, "All parts are done."));
    assert_eq!(model.most.load(Ordering::SeqCst), 3);
    let ended = |reply: &AgentReply| {
        matches!(reply.body, ReplyBody::DelegationEnded { state: TaskState::Completed, .. })
    };
    assert_eq!(before.iter().filter(|reply| ended(reply)).count(), 3);
    // One turn for all three, whose spending counts.
    let all = model.requests(false).len() + model.requests(true).len();
    assert_eq!(usage.session.model_calls, all as u64);
    assert_eq!((usage.children.model_calls, model.requests(false).len()), (3, 3));
    let (read, _) = exchange(&model.requests(false)[2]);
    assert_eq!(read.matches("\nFound.\n").count(), 3, "{read}");
    // A slot is free again.
    assert_eq!(say(&client, "go").await.0, "Started.");
    wait_until("three more run", || model.requests(true).len() == 6).await;
}

#[tokio::test]
async fn next_message_does_not_end_a_sub_agent() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let model = FunctionModel::gated(1, &gate);
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    for _ in 0..2 {
        assert_eq!(say(&client, "still there?").await.0, "Started.");
    }
    gate.add_permits(1);
    assert_eq!(follow_up(&mut follow_ups).await.1, "All parts are done.");
}

#[tokio::test]
async fn sub_agent_cannot_start_others_and_reports_to_the_user_only() {
    let fleet = Fleet::new();
    let model = FunctionModel::new(|request| {
        if !is_sub_agent(request) {
            return (root_script(request, 1), None);
        }
        let (_, results) = exchange(request);
        if results.is_empty() {
            let report = |n| ("report_progress", json!({"message": format!("report {n}")}));
            let mut calls: Vec<_> = (1..=100).map(report).collect();
            calls.push(("spawn_subagent", json!({"description": "more"})));
            return (call_all(&calls), None);
        }
        (text_events("Found."), None)
    });
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    let before = follow_up(&mut follow_ups).await.3;
    let offered = |request: &ChatRequest| -> Vec<_> {
        let names = request.tools.iter().map(|tool| tool.name.clone());
        names.filter(|name| name.contains("subagent") || name == "report_progress").collect()
    };
    assert_eq!(offered(&model.requests(true)[0]), ["report_progress"]);
    assert!(!offered(&model.requests(false)[0]).contains(&"report_progress".to_owned()));
    let (_, results) = exchange(&model.requests(true)[1]);
    assert!(results[100].contains("may not use that tool"), "{}", results[100]);
    assert_eq!(model.requests(true).len(), 2, "reports cause no model call");
    let shown = before.iter().filter_map(|reply| match &reply.body {
        ReplyBody::DelegationProgressed { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert!(shown.count() <= 2, "reports are throttled");
    let last = async {
        while tasks(&client).await[0].last_report != "report 100" {
            tokio::task::yield_now().await;
        }
    };
    within_timeout("the last report", last).await;
}

#[tokio::test]
async fn cancel_of_the_user_ends_sub_agents_and_counts_their_spending() {
    let (fleet, slow) = (Fleet::new(), ProbeTool::new("slow", Behavior::Hang));
    let model = FunctionModel::new(|request| match is_sub_agent(request) {
        true => (call_all(&[("slow", json!({}))]), None),
        false => (root_script(request, 2), None),
    });
    let _served = fleet.serve(fleet.agent(&model, &[&slow])).await;
    let (client, _follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    slow.wait_for_call().await;
    slow.wait_for_call().await;
    let replies = client.send(&tester(), &cancel("s")).await.unwrap();
    let reply = within_timeout("an answer", replies.last()).await.unwrap();
    let ReplyBody::Answer { text, outcome, .. } = reply.body else { panic!("{reply:?}") };
    assert_eq!(
        (outcome, text.as_str()),
        (TurnOutcome::Cancelled, "Cancelled, with 2 of its sub-agents.")
    );
    let is_cancelled = |context: &rockbot_tools::ToolContext| context.cancellation.is_cancelled();
    assert!(slow.contexts.lock().unwrap().iter().all(is_cancelled));
    let tasks = tasks(&client).await;
    assert!(tasks.iter().all(|task| task.state == TaskState::Cancelled), "{tasks:?}");
    assert!(tasks.iter().all(|task| task.usage.unwrap().model_calls == 1));
    assert_eq!(model.requests(false).len(), 2, "cancelled work is not passed on");
}

#[tokio::test]
async fn approval_is_requested_from_the_user_of_the_conversation() {
    let rules = json!({"rules": [{"tool": "work", "policy": "ask"}]});
    let section: ApprovalSection = serde_json::from_value(rules).unwrap();
    let fleet = Fleet { approvals: Approvals::new(section), ..Fleet::new() };
    let work = ProbeTool::new("work", Behavior::Echo);
    let model = FunctionModel::new(|request| match is_sub_agent(request) {
        true if exchange(request).1.is_empty() => (call_all(&[("work", json!({}))]), None),
        true => (text_events("Found."), None),
        false => (root_script(request, 1), None),
    });
    let _served = fleet.serve(fleet.agent(&model, &[&work])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    let reply = within_timeout("a request", follow_ups.next()).await.unwrap();
    let ReplyBody::ApprovalAsked { approval_id, call_hash, .. } = reply.body else {
        panic!("{reply:?}")
    };
    assert_eq!(work.calls(), 0);
    let (session_id, decision) = (reply.session_id, ApprovalDecision::Allow);
    let answer = ApprovalAnswer { session_id, approval_id, call_hash, decision, reason: None };
    client.answer_approval(&tester(), &answer).await.unwrap();
    follow_up(&mut follow_ups).await;
    assert_eq!(work.calls(), 1);
}

#[tokio::test]
async fn another_process_continues_a_sub_agent_and_passes_its_result_on_once() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let script = |request: &ChatRequest| match is_sub_agent(request) {
        true if exchange(request).1.is_empty() => (call_all(&[("work", json!({}))]), None),
        true => (text_events("Found."), None),
        false => (root_script(request, 1), None),
    };
    let (model, other_model) = (FunctionModel::new(script), FunctionModel::new(script));
    let stalled = ProbeTool::new("work", Behavior::Gated(gate));
    let working = ProbeTool::new("work", Behavior::Echo);
    let agent = fleet.agent(&model, &[&stalled]);
    let inbox = fleet.replica(&agent, "one").await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    stalled.wait_for_call().await;
    let other = fleet.agent(&other_model, &[&working]);
    let _other_inbox = fleet.replica(&other, "two").await;
    // The process dies: its tasks stop, and its leases are not renewed.
    drop((inbox, agent));
    let (ids, text, usage, _) = follow_up(&mut follow_ups).await;
    assert_eq!((ids.len(), text.as_str()), (1, "All parts are done."));
    assert_eq!(working.ids(), stalled.ids(), "the call is made again under its id");
    assert_eq!(other_model.requests(false).len(), 1);
    let all = model.requests(false).len() + model.requests(true).len();
    let all = all + other_model.requests(false).len() + other_model.requests(true).len();
    assert_eq!(usage.session.model_calls, all as u64);
    let again = tokio::time::timeout(Duration::from_secs(3), follow_ups.next()).await;
    assert!(again.is_err(), "{again:?}");
}

#[tokio::test]
async fn embedded_agent_continues_sub_agents_of_a_process_that_just_died() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let model = FunctionModel::gated(1, &gate);
    let served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, _follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    wait_until("it runs", || model.requests(true).len() == 1).await;
    let task = tasks(&client).await.remove(0);
    drop(served);
    // The lease of the process is left, for its last seconds.
    let (store, session) = (&fleet.stores.store, task.task_session_id.as_str());
    let _left = lease_of_dead_process(store, "tester", session, Duration::from_secs(2)).await;
    let later = Fleet { bus: Arc::new(MemoryBus::new()), ..fleet };
    let _served = later.serve(later.agent(&model, &[])).await;
    let (client, mut follow_ups) = later.client("later").await;
    gate.add_permits(1);
    assert_eq!(say(&client, "hello").await.0, "Started.");
    assert_eq!(follow_up(&mut follow_ups).await.1, "All parts are done.");
}

#[tokio::test]
async fn user_who_returns_reads_the_answer_once() {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let model = FunctionModel::gated(1, &gate);
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    wait_until("it runs", || model.requests(true).len() == 1).await;
    drop((client, follow_ups));
    gate.add_permits(1);
    wait_until("results were read", || model.requests(false).len() == 3).await;
    let (client, mut follow_ups) = fleet.client("later").await;
    assert_eq!(say(&client, "hello").await.0, "Started.");
    assert_eq!(follow_up(&mut follow_ups).await.1, "All parts are done.");
    assert_eq!(say(&client, "hello").await.0, "Started.");
    assert!(follow_ups.next().now_or_never().is_none(), "it is not sent again");
    assert_eq!(model.requests(false).len(), 5, "no turn ran again");
}

#[tokio::test(start_paused = true)]
async fn late_result_is_read_in_a_turn_of_its_own() {
    let options =
        DelegationOptions { batch_wait: Duration::from_secs(20), ..DelegationOptions::default() };
    let (fleet, gate) = (Fleet { options, ..Fleet::new() }, Arc::new(Semaphore::new(0)));
    let model = FunctionModel::new({
        let gate = gate.clone();
        move |request| {
            let is_late = exchange(request).0.contains("part 2\n");
            match is_sub_agent(request) {
                true => (text_events("Found."), is_late.then(|| gate.clone())),
                false => (root_script(request, 2), None),
            }
        }
    });
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    say(&client, "go").await;
    let started = tokio::time::Instant::now();
    let first = follow_up(&mut follow_ups).await.0;
    assert!(started.elapsed() >= Duration::from_secs(19), "after {:?}", started.elapsed());
    gate.add_permits(1);
    let second = follow_up(&mut follow_ups).await.0;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
}

/// Cancels sub-agents while they end, `rounds` times. Returns how many completed and how many were cancelled.
async fn race_cancels(rounds: usize) -> (usize, usize) {
    let (fleet, gate) = (Fleet::new(), Arc::new(Semaphore::new(0)));
    let model = FunctionModel::new({
        let gate = gate.clone();
        move |request| match is_sub_agent(request) {
            true => (text_events("Found."), Some(gate.clone())),
            false => {
                let fills = exchange(request).0.starts_with("go on");
                (root_script(request, if fills { 4 } else { 1 }), None)
            }
        }
    });
    let _served = fleet.serve(fleet.agent(&model, &[])).await;
    let (client, mut follow_ups) = fleet.client("proxy").await;
    let (mut completed, mut cancelled) = (0, 0);
    for round in 0..rounds {
        say(&client, "go").await;
        wait_until("it runs", || model.requests(true).len() == round + 1).await;
        let open = tasks(&client).await.into_iter().find(|task| !task.state.is_terminal());
        let task_id = open.unwrap().task_id;
        let request = ConversationRequest::CancelTask { task_id };
        // A permit that is not taken by a cancelled request is for the next one.
        gate.add_permits(1);
        // The end is another step further in each round.
        for _ in 0..round {
            yield_now().await;
        }
        match client.request(&tester(), &request).await {
            Ok(ConversationResponse::Task { task, .. }) if task.state == TaskState::Cancelled => {
                cancelled += 1;
            }
            // It had ended.
            _ => {
                completed += 1;
                assert_eq!(follow_up(&mut follow_ups).await.1, "All parts are done.");
            }
        }
        while gate.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok() {}
    }
    let states: Vec<_> = tasks(&client).await.iter().map(|task| task.state).collect();
    let count = |state| states.iter().filter(|one| **one == state).count();
    assert_eq!(count(TaskState::Completed), completed);
    assert_eq!((count(TaskState::Cancelled), states.len()), (cancelled, rounds), "{states:?}");
    // All slots are free.
    say(&client, "go on").await;
    wait_until("three run", || model.requests(true).len() == rounds + 3).await;
    let requests = model.requests(false);
    let (_, results) = exchange(requests.last().expect("a request"));
    let spawned = results.iter().filter(|text| text.starts_with("Subagent spawned")).count();
    assert_eq!((results.len(), spawned), (4, 3), "{results:?}");
    (completed, cancelled)
}

#[tokio::test(start_paused = true)]
async fn cancels_that_race_with_the_end_leave_one_outcome_and_free_slots() {
    const ROUNDS: usize = 50;
    let (mut completed, mut cancelled) = (0, 0);
    for _ in 0..20 {
        let outcomes = race_cancels(ROUNDS).await;
        (completed, cancelled) = (completed + outcomes.0, cancelled + outcomes.1);
    }
    assert_eq!(completed + cancelled, 1000);
    assert!(completed > 0 && cancelled > 0, "{completed} completed, {cancelled} cancelled");
}
