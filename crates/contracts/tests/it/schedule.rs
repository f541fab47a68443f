//! Golden JSON of messages about scheduled tasks, and their tolerance.

use rockbot_contracts::{
    AgentName, ScheduleRequest, ScheduleResponse, ScheduledEnded, SessionId,
    conversation::ConversationErrorCode,
    schedule::{FireInfo, LastFireInfo, NewTask, ScheduledTaskInfo},
    user::TurnOutcome,
};
use serde_json::json;

use crate::fixtures::{check, session};

const FIRE_MS: u64 = 1_764_057_600_000;

fn fire() -> FireInfo {
    let session_id = SessionId::new("scheduled-report-20251125T080000Z-0123abcd").unwrap();
    FireInfo { fire_ms: FIRE_MS, session_id }
}

#[test]
fn requests_match_golden_json() {
    let name = || "report".to_owned();
    let task = NewTask {
        name: name(),
        cron: "0 9 * * MON-FRI".to_owned(),
        description: "Summarize the overnight tickets.".to_owned(),
        run_once: false,
        timezone: Some("Europe/Berlin".to_owned()),
    };
    let requests = [
        ("list", ScheduleRequest::List {}),
        ("add", ScheduleRequest::Add { task }),
        ("cancel", ScheduleRequest::Cancel { name: name() }),
        ("run-now", ScheduleRequest::RunNow { name: name() }),
    ];
    for (action, request) in requests {
        check(&format!("schedule-request-{action}.json"), &request);
    }
}

#[test]
fn responses_match_golden_json() {
    let task = ScheduledTaskInfo {
        name: "report".to_owned(),
        cron: "0 9 * * MON-FRI".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        has_own_timezone: true,
        description: "Summarize the overnight tickets.".to_owned(),
        run_once: false,
        next_ms: Some(FIRE_MS + 86_400_000),
        running: Some(fire()),
        last: Some(LastFireInfo {
            fire: fire(),
            ended_ms: FIRE_MS + 12_000,
            outcome: TurnOutcome::Completed,
            text: "No new tickets.".to_owned(),
        }),
        fired: 3,
        missed: 1,
        overlapped: 0,
        failed: 1,
        created_ms: 1_764_000_000_000,
        created_in: Some(session()),
        created_by_task: Some("planner".to_owned()),
    };
    let tasks = ScheduleResponse::Tasks { now_ms: FIRE_MS, tasks: vec![task] };
    check("schedule-response-tasks.json", &tasks);
    let message = "Cancelled scheduled task 'report'.".to_owned();
    check("schedule-response-done.json", &ScheduleResponse::Done { message });
    let (code, message) = (ConversationErrorCode::NotFound, "no task".to_owned());
    check("schedule-response-failed.json", &ScheduleResponse::Failed { code, message });
}

#[test]
fn announcement_matches_golden_json() {
    let FireInfo { fire_ms, session_id } = fire();
    let ended = ScheduledEnded {
        agent: AgentName::new("assistant").unwrap(),
        task: "report".to_owned(),
        fire_ms,
        session_id,
        outcome: TurnOutcome::Completed,
        text: "No new tickets.".to_owned(),
    };
    check("scheduled-ended.json", &ended);
}

#[test]
fn optional_fields_may_be_absent() {
    let task = json!({"action": "add", "name": "a", "cron": "* * * * *", "description": "b"});
    let ScheduleRequest::Add { task } = serde_json::from_value(task).unwrap() else { panic!() };
    assert!(!task.run_once && task.timezone.is_none());
}
