//! Scheduled tasks: when they fire, in which process, and what becomes of their results.

use std::{sync::Arc, time::Duration};

use rockbot_agent::ScheduleSection;
use rockbot_contracts::{
    InstanceId, ScheduleRequest, SessionId, schedule::NewTask, user::TurnOutcome,
};
use rockbot_llm::{ChatMessage, ScriptedTurn};
use rockbot_store::LogName;
use tokio::sync::Semaphore;

use crate::{
    harness::{Answer, CannedModel, RecordingModel, send, text_events},
    schedule_harness::{Process, Site, UnconfirmedWrite, new_task, several_scans, tester},
};

const MORNING: &str = "2026-11-25T07:00:00Z";
const NINE: &str = "2026-11-25T09:00:00Z";

fn text(answer: &str) -> Arc<RecordingModel> {
    RecordingModel::script([ScriptedTurn::text(answer)])
}

/// Returns the kinds of the entries of a conversation.
async fn kinds(site: &Site, session: &SessionId) -> Vec<String> {
    let name = LogName::new(["conversation", "tester", session.as_str()]).unwrap();
    let entries = site.stores.log.read(&name, 1, 100).await.unwrap();
    let kind = |value: &[u8]| {
        let value: serde_json::Value = serde_json::from_slice(value).unwrap();
        value["kind"].as_str().unwrap().to_owned()
    };
    entries.iter().map(|entry| kind(&entry.value)).collect()
}

async fn last_session(process: &Process, task: &str) -> SessionId {
    process.task(task).await.last.unwrap().fire.session_id
}

#[tokio::test(start_paused = true)]
async fn two_processes_fire_each_task_once() {
    let site = Site::at(MORNING);
    let model = text("The disk is fine.");
    let one = site.start("one", &model).await;
    let two = site.start("two", &model).await;
    for number in 0..20 {
        one.add(&format!("task {number}"), "0 9 * * *").await;
    }
    several_scans().await;
    assert_eq!(model.request_count(), 0);
    site.set(NINE);
    two.wait_for(|tasks| tasks.iter().all(|task| task.last.is_some())).await;
    several_scans().await;
    assert_eq!(model.request_count(), 20);
    for task in two.tasks().await {
        assert_eq!((task.fired, task.missed, task.overlapped, task.failed), (1, 0, 0, 0));
        assert!(task.running.is_none());
        let session = last_session(&one, &task.name).await;
        assert_eq!(kinds(&site, &session).await, ["message", "answer"]);
    }
}

#[tokio::test(start_paused = true)]
async fn fire_continues_in_another_process_after_a_crash() {
    let site = Site::at(MORNING);
    let hanging = RecordingModel::new(CannedModel::new([Answer::Never]));
    let one = site.start("one", &hanging).await;
    one.add("report", "0 9 * * *").await;
    site.set(NINE);
    one.wait_for_requests(1).await;
    drop(one);
    let two = site.start("two", &text("Done.")).await;
    // The lease of the first process expires.
    site.clock.advance(Duration::from_secs(3));
    two.wait_for(|tasks| tasks[0].last.is_some()).await;
    let task = two.task("report").await;
    assert_eq!((task.fired, task.last.unwrap().text.as_str()), (1, "Done."));
    assert_eq!(two.model.request_count(), 1);
    let session = last_session(&two, "report").await;
    assert_eq!(kinds(&site, &session).await, ["message", "takeover", "takeover", "answer"]);
}

#[tokio::test(start_paused = true)]
async fn restarts_do_not_repeat_a_fire() {
    let site = Site::at(MORNING);
    let model = text("Done.");
    let process = site.start("first", &model).await;
    process.add("report", "0 9 * * *").await;
    site.set(NINE);
    process.wait_for(|tasks| tasks[0].last.is_some()).await;
    drop(process);
    for restart in 0..20 {
        site.clock.advance(Duration::from_secs(3));
        let process = site.start(&format!("restart-{restart}"), &model).await;
        several_scans().await;
        assert_eq!(process.task("report").await.fired, 1);
    }
    assert_eq!(model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn missed_fires_are_made_up_for_once_after_a_pause() {
    let site = Site::at("2026-11-25T06:50:00Z");
    let model = text("Done.");
    let process = site.start("one", &model).await;
    process.add("quarterly", "*/15 * * * *").await;
    process.add("daily", "0 7 * * *").await;
    drop(process);
    site.set("2026-11-25T09:58:00Z");
    let process = site.start("two", &model).await;
    process.wait_for(|tasks| tasks.iter().any(|task| task.last.is_some())).await;
    several_scans().await;
    let (quarterly, daily) = (process.task("quarterly").await, process.task("daily").await);
    assert_eq!((quarterly.fired, quarterly.missed), (1, 11));
    assert_eq!((daily.fired, daily.missed), (0, 1));
    let ChatMessage::User(message) = &model.last_request().messages[1] else { panic!() };
    assert!(message.contains("13 min late. 11 fires before it were missed."), "{message}");
}

#[tokio::test(start_paused = true)]
async fn task_does_not_overlap_itself() {
    let (site, gate) = (Site::at(MORNING), Arc::new(Semaphore::new(0)));
    let answers = [Answer::Gated(gate.clone(), "Late."), Answer::Events(text_events("Next."))];
    let process = site.start("one", &RecordingModel::new(CannedModel::new(answers))).await;
    process.add("report", "*/15 * * * *").await;
    site.set("2026-11-25T07:15:00Z");
    process.wait_for_requests(1).await;
    site.set("2026-11-25T07:46:00Z");
    process.wait_for(|tasks| tasks[0].overlapped == 2).await;
    let running = ScheduleRequest::RunNow { name: "report".to_owned() };
    let refused = process.request(running.clone()).await.unwrap_err();
    assert!(refused.contains("is running"), "{refused}");
    gate.add_permits(1);
    process.wait_for(|tasks| tasks[0].last.is_some()).await;
    process.request(running).await.unwrap();
    process.wait_for(|tasks| tasks[0].fired == 2 && tasks[0].running.is_none()).await;
    assert_eq!(process.task("report").await.last.unwrap().text, "Next.");
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_writes_never_repeat_a_fire() {
    for (number, is_made) in (0..6).flat_map(|number| [(number, false), (number, true)]) {
        let site = Site::at(MORNING);
        let model = text("Done.");
        site.start("adds", &model).await.add("report", "0 9 * * *").await;
        site.set(NINE);
        let store = UnconfirmedWrite::wrap(site.stores.store.clone(), number, is_made);
        let section = ScheduleSection::default();
        let process = site.start_with("runs", &model, section, store).await;
        process.wait_for(|tasks| tasks[0].last.is_some()).await;
        several_scans().await;
        let task = process.task("report").await;
        assert_eq!((task.fired, model.request_count()), (1, 1), "write {number}, made: {is_made}");
        assert!(send(&process.agent, "hello").await.text == "Done.");
        assert_eq!(results_shown(&model), 1, "write {number}, made: {is_made}");
    }
}

/// Returns the number of times that the last request shows results of scheduled tasks.
fn results_shown(model: &RecordingModel) -> usize {
    let shown = |message: &ChatMessage| match message {
        ChatMessage::User(text) => text.matches("Results of scheduled tasks").count(),
        _ => 0,
    };
    model.last_request().messages.iter().map(shown).sum()
}

#[tokio::test(start_paused = true)]
async fn result_is_announced_and_shown_once_to_the_next_user_turn() {
    let site = Site::at(MORNING);
    let process = site.start("one", &text("The disk is full.")).await;
    let instance = InstanceId::new("chat").unwrap();
    let mut results = process.client.scheduled_results(&tester(), &instance).await.unwrap();
    process.add("disk", "0 9 * * *").await;
    site.set(NINE);
    let ended = results.next().await.unwrap();
    assert_eq!((ended.task.as_str(), ended.text.as_str()), ("disk", "The disk is full."));
    assert_eq!(ended.outcome, TurnOutcome::Completed);
    process.wait_for(|tasks| tasks[0].running.is_none()).await;
    assert_eq!(results_shown(&process.model), 0, "the turn of a task sees none");
    send(&process.agent, "hello").await;
    assert_eq!(results_shown(&process.model), 1);
    let ChatMessage::User(message) = process.model.last_request().messages.remove(1) else {
        panic!()
    };
    let shown = format!("conversation {}: completed\n  The disk is full.", ended.session_id);
    assert!(message.contains(&shown), "{message}");
    send(&process.agent, "again").await;
    assert_eq!(results_shown(&process.model), 1, "only in the message before");
}

#[tokio::test(start_paused = true)]
async fn answer_without_a_report_is_not_shown() {
    let site = Site::at(MORNING);
    let process = site.start("one", &text("NOTHING")).await;
    process.add("disk", "0 9 * * *").await;
    site.set(NINE);
    process.wait_for(|tasks| tasks[0].last.is_some()).await;
    send(&process.agent, "hello").await;
    assert_eq!(results_shown(&process.model), 0);
}

#[tokio::test(start_paused = true)]
async fn single_task_is_removed_after_its_turn() {
    let site = Site::at(MORNING);
    let process = site.start("one", &text("Remember the review.")).await;
    let task = NewTask { run_once: true, ..new_task("reminder", "0 9 25 11 *") };
    process.request(ScheduleRequest::Add { task: task.clone() }).await.unwrap();
    site.set(NINE);
    process.wait_for_requests(1).await;
    process.wait_for(<[_]>::is_empty).await;
    send(&process.agent, "hello").await;
    assert_eq!(results_shown(&process.model), 1);

    let refused = process.request(ScheduleRequest::Add { task }).await.unwrap_err();
    assert!(
        refused.contains("that time is over: the next one is 2027-11-25 09:00:00"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn missed_single_task_is_removed_and_reported() {
    let site = Site::at(MORNING);
    let model = text("Noted.");
    let process = site.start("one", &model).await;
    let task = NewTask { run_once: true, ..new_task("reminder", "0 9 25 11 *") };
    process.request(ScheduleRequest::Add { task }).await.unwrap();
    drop(process);
    site.set("2026-11-25T12:00:00Z");
    let process = site.start("two", &model).await;
    process.wait_for(<[_]>::is_empty).await;
    send(&process.agent, "hello").await;
    let request = format!("{:?}", model.last_request().messages);
    assert!(request.contains("'reminder'") && request.contains("missed"), "{request}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_task_ends_with_its_running_turn() {
    let (site, gate) = (Site::at(MORNING), Arc::new(Semaphore::new(0)));
    let model = RecordingModel::new(CannedModel::new([Answer::Gated(gate.clone(), "Done.")]));
    let process = site.start("one", &model).await;
    process.add("report", "*/15 * * * *").await;
    site.set("2026-11-25T07:15:00Z");
    process.wait_for_requests(1).await;
    let cancel = ScheduleRequest::Cancel { name: "REPORT".to_owned() };
    let cancelled = process.request(cancel.clone()).await.unwrap();
    assert_eq!(cancelled, "Cancelled scheduled task 'report'. Its running turn continues.");
    site.set("2026-11-25T08:00:00Z");
    several_scans().await;
    assert_eq!(process.task("report").await.next_ms, None);
    gate.add_permits(1);
    process.wait_for(<[_]>::is_empty).await;
    assert_eq!(model.request_count(), 1);
    let missing = process.request(cancel).await.unwrap_err();
    assert!(missing.starts_with("there is no scheduled task 'REPORT'"), "{missing}");
}
