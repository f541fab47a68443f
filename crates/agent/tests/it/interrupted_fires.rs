//! Fires of scheduled tasks, and their results, after failures.

use std::{sync::Arc, time::Duration};

use rockbot_agent::ScheduleSection;
use rockbot_contracts::{ScheduleRequest, SessionId, schedule::NewTask, user::TurnOutcome};
use rockbot_llm::{ChatMessage, ScriptedTurn};
use rockbot_store::{Appended, Key, LogName, Write};

use crate::{
    harness::{Answer, CannedModel, RecordingModel, message, send, text_events},
    schedule_harness::{Process, Site, UnconfirmedWrite, new_task, several_scans, tester},
};

const MORNING: &str = "2026-11-25T07:00:00Z";
const NINE: &str = "2026-11-25T09:00:00Z";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn text(answer: &str) -> Arc<RecordingModel> {
    RecordingModel::script([ScriptedTurn::text(answer)])
}

fn hanging() -> Arc<RecordingModel> {
    RecordingModel::new(CannedModel::new([Answer::Never]))
}

fn last_message(model: &RecordingModel) -> String {
    let user = |message: &ChatMessage| match message {
        ChatMessage::User(text) => Some(text.clone()),
        _ => None,
    };
    model.last_request().messages.iter().rev().find_map(user).unwrap()
}

/// Starts the turn of a task in a process that dies during it. Returns its conversation.
async fn lose_fire(site: &Site) -> SessionId {
    let process = site.start("lost", &hanging()).await;
    process.add("report", "0 9 25 11 *").await;
    site.set(NINE);
    process.wait_for_requests(1).await;
    process.task("report").await.running.unwrap().session_id
}

async fn last(process: &Process) -> (TurnOutcome, String) {
    process.wait_for(|tasks| tasks[0].last.is_some()).await;
    let last = process.task("report").await.last.unwrap();
    (last.outcome, last.text)
}

#[tokio::test(start_paused = true)]
async fn result_reaches_the_turn_although_its_process_dies_in_its_first_request() {
    let site = Site::at(MORNING);
    let answers = [Answer::Events(text_events("The disk is full.")), Answer::Never];
    let one = site.start("one", &RecordingModel::new(CannedModel::new(answers))).await;
    one.add("disk", "0 9 * * *").await;
    site.set(NINE);
    one.wait_for(|tasks| tasks[0].last.is_some()).await;
    let turn = one.client.send(&tester(), &message("s", "hello")).await.unwrap();
    one.wait_for_requests(2).await;
    assert!(last_message(&one.model).contains("The disk is full."));
    drop(one);
    // The lease of the first process expires.
    site.clock.advance(Duration::from_secs(3));
    let two = site.start("two", &text("Noted.")).await;
    two.wait_for_requests(1).await;
    assert!(last_message(&two.model).contains("The disk is full."), "{}", last_message(&two.model));
    several_scans().await;
    send(&two.agent, "something else").await;
    assert!(!last_message(&two.model).contains("The disk is full."));
    drop(turn);
}

#[tokio::test(start_paused = true)]
async fn fire_whose_conversation_expired_is_not_run_again() {
    let site = Site::at(MORNING);
    lose_fire(&site).await;
    site.clock.advance(31 * DAY);
    let process = site.start("later", &text("Done.")).await;
    let (outcome, text) = last(&process).await;
    assert_eq!(outcome, TurnOutcome::ModelFailed);
    assert!(text.contains("may have run"), "{text}");
    several_scans().await;
    assert_eq!(process.model.request_count(), 0);
    send(&process.agent, "hello").await;
    assert!(last_message(&process.model).contains("may have run"), "its user reads it");
}

#[tokio::test(start_paused = true)]
async fn fire_whose_conversation_cannot_be_read_ends() {
    let site = Site::at(MORNING);
    let session = lose_fire(&site).await;
    let name = LogName::new(["conversation", "tester", session.as_str()]).unwrap();
    let end = site.stores.log.state(&name).await.unwrap().unwrap().end();
    let damaged = vec!["{}".into()];
    let appended = site.stores.log.append(&name, end, damaged, None).await.unwrap();
    assert!(matches!(appended, Appended::Done { .. }));
    site.clock.advance(Duration::from_secs(3));
    let process = site.start("later", &text("Done.")).await;
    let (outcome, text) = last(&process).await;
    assert_eq!(outcome, TurnOutcome::ModelFailed);
    assert!(text.contains("cannot be read"), "{text}");
    assert_eq!(process.model.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn second_cancel_removes_a_task_whose_turn_does_not_end() {
    let site = Site::at(MORNING);
    let process = site.start("one", &hanging()).await;
    process.add("report", "0 9 * * *").await;
    site.set(NINE);
    process.wait_for_requests(1).await;
    let cancel = ScheduleRequest::Cancel { name: "report".to_owned() };
    process.request(cancel.clone()).await.unwrap();
    assert_eq!(process.tasks().await.len(), 1);
    process.request(cancel).await.unwrap();
    assert!(process.tasks().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn missed_single_task_is_reported_once_despite_unconfirmed_writes() {
    for (number, is_made) in (0..4).flat_map(|number| [(number, false), (number, true)]) {
        let site = Site::at(MORNING);
        let model = text("Noted.");
        let task = NewTask { run_once: true, ..new_task("reminder", "0 9 25 11 *") };
        let adds = site.start("adds", &model).await;
        adds.request(ScheduleRequest::Add { task }).await.unwrap();
        drop(adds);
        site.set("2026-11-25T12:00:00Z");
        let store = UnconfirmedWrite::wrap(site.stores.store.clone(), number, is_made);
        let process = site.start_with("runs", &model, ScheduleSection::default(), store).await;
        process.wait_for(<[_]>::is_empty).await;
        send(&process.agent, "hello").await;
        let shown = last_message(&model).matches("'reminder'").count();
        assert_eq!(shown, 1, "write {number}, made: {is_made}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_task_can_be_replaced_and_removed() {
    let site = Site::at(MORNING);
    let process = site.start("one", &text("Done.")).await;
    process.add("report", "0 9 * * *").await;
    let key = Key::new(["schedule", "tester", "report"]).unwrap();
    let damage = || site.stores.store.write(Write::new(key.clone(), r#"{"version": 2}"#));
    damage().await.unwrap();
    assert!(process.tasks().await.is_empty());
    process.add("report", "0 10 * * *").await;
    assert_eq!(process.task("report").await.cron, "0 10 * * *");
    damage().await.unwrap();
    let cancel = ScheduleRequest::Cancel { name: "report".to_owned() };
    let removed = process.request(cancel).await.unwrap();
    assert!(removed.contains("could not be read"), "{removed}");
    assert!(site.stores.store.get(&key).await.unwrap().is_none());
}
