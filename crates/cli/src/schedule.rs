//! `rockbot schedule`: lists, shows, adds, cancels and runs scheduled tasks.

use jiff::{Timestamp, tz::TimeZone};
use rockbot_agent::{ConversationRequestError, schedule::describe_outcome};
use rockbot_contracts::{
    ScheduleRequest, ScheduleResponse,
    conversation::ConversationErrorCode,
    schedule::{LastFireInfo, NewTask, ScheduledTaskInfo},
};
use rockbot_service::exit;
use serde_json::json;

use crate::{
    arguments::Schedule,
    failure::{Failure, Outcome},
    print::{note, outln},
    render,
    sessions::access::ConversationAccess,
    settings::Settings,
    stored_conversations::Purpose,
};

/// Longest description in a row of the list, in characters.
const MAX_DESCRIPTION_CHARS: usize = 60;

pub(crate) async fn run(mut settings: Settings, command: Schedule, json: bool) -> Outcome {
    if let Some(name) = command.agent() {
        settings.agent.name.clone_from(name);
    }
    let agent = ConversationAccess::open(&settings, Purpose::Schedule).await?;
    let outcome = match command {
        Schedule::List { .. } => list(&agent, json).await,
        Schedule::Show { task, .. } => show(&agent, &task.name, json).await,
        Schedule::Add { task, cron, description, once, timezone, .. } => {
            let task = NewTask { name: task.name, cron, description, run_once: once, timezone };
            change(&agent, ScheduleRequest::Add { task }, json).await
        }
        Schedule::Cancel { task, .. } => {
            change(&agent, ScheduleRequest::Cancel { name: task.name }, json).await
        }
        Schedule::RunNow { task, .. } => {
            change(&agent, ScheduleRequest::RunNow { name: task.name }, json).await
        }
    };
    agent.close().await;
    outcome
}

async fn tasks(agent: &ConversationAccess) -> Result<(u64, Vec<ScheduledTaskInfo>), Failure> {
    match agent.request_schedule(&ScheduleRequest::List {}).await? {
        ScheduleResponse::Tasks { now_ms, tasks } => Ok((now_ms, tasks)),
        _ => Err(ConversationRequestError::UnexpectedResponse.into()),
    }
}

async fn list(agent: &ConversationAccess, json: bool) -> Outcome {
    let (now, tasks) = tasks(agent).await?;
    if json {
        outln!("{}", render::json(&json!(tasks)))?;
        return Ok(exit::OK);
    }
    if tasks.is_empty() {
        note!("agent {} has no scheduled tasks", agent.agent());
        return Ok(exit::OK);
    }
    let headings = ["name", "cron", "zone", "next fire", "last", "description"];
    outln!("{}", render::table(&headings, tasks.iter().map(|task| row(task, now))))?;
    Ok(exit::OK)
}

async fn show(agent: &ConversationAccess, name: &str, json: bool) -> Outcome {
    let (now, tasks) = tasks(agent).await?;
    let name = name.trim().to_lowercase();
    let Some(task) = tasks.into_iter().find(|task| task.name.to_lowercase() == name) else {
        let text =
            format!("there is no scheduled task '{name}'; list the tasks to see their names");
        let code = ConversationErrorCode::NotFound;
        return Err(ConversationRequestError::Refused { code, message: text }.into());
    };
    if json {
        outln!("{}", render::json(&json!(task)))?;
        return Ok(exit::OK);
    }
    for (label, value) in details(&task, now) {
        outln!("{}", render::clean(&format!("{label}: {value}")))?;
    }
    outln!("\n{}", render::clean(&task.description))?;
    if let Some(last) = &task.last {
        outln!("\n{}", render::dim("last answer"))?;
        outln!("{}", render::clean(&last.text))?;
    }
    Ok(exit::OK)
}

async fn change(agent: &ConversationAccess, request: ScheduleRequest, json: bool) -> Outcome {
    match agent.request_schedule(&request).await? {
        ScheduleResponse::Done { message } if json => {
            outln!("{}", render::json(&json!({"message": message})))?;
        }
        ScheduleResponse::Done { message } => outln!("{}", render::clean(&message))?,
        _ => return Err(ConversationRequestError::UnexpectedResponse.into()),
    }
    Ok(exit::OK)
}

fn row(task: &ScheduledTaskInfo, now: u64) -> Vec<String> {
    let zone = if task.has_own_timezone {
        task.timezone.clone()
    } else {
        format!("{} (agent)", task.timezone)
    };
    vec![
        render::short_line(&task.name, usize::MAX),
        render::short_line(&task.cron, usize::MAX),
        render::short_line(&zone, usize::MAX),
        next(task),
        last(task, now),
        render::short_line(&task.description, MAX_DESCRIPTION_CHARS),
    ]
}

fn next(task: &ScheduledTaskInfo) -> String {
    match task.next_ms {
        Some(next) if task.run_once => format!("{}, once", local(next, &task.timezone)),
        Some(next) => local(next, &task.timezone),
        None => "none".to_owned(),
    }
}

fn last(task: &ScheduledTaskInfo, now: u64) -> String {
    if let Some(running) = &task.running {
        return format!("running, due {}", render::ago(running.fire_ms / 1000, now / 1000));
    }
    match &task.last {
        Some(LastFireInfo { ended_ms, outcome, .. }) => {
            format!("{} {}", describe_outcome(*outcome), render::ago(ended_ms / 1000, now / 1000))
        }
        None => "never".to_owned(),
    }
}

fn details(task: &ScheduledTaskInfo, now: u64) -> Vec<(&'static str, String)> {
    let mut details = vec![
        ("name", task.name.clone()),
        ("cron", task.cron.clone()),
        ("time zone", task.timezone.clone()),
        ("next fire", next(task)),
        ("last", last(task, now)),
        (
            "fires",
            format!(
                "{} fired, {} failed, {} missed, {} overlapped",
                task.fired, task.failed, task.missed, task.overlapped
            ),
        ),
        ("created", render::ago(task.created_ms / 1000, now / 1000)),
    ];
    if let Some(session) = &task.created_in {
        details.push(("created in", session.to_string()));
    }
    if let Some(root) = &task.created_by_task {
        details.push(("created by task", root.clone()));
    }
    let last = task.last.as_ref().map(|last| &last.fire);
    for (label, fire) in [("turn", task.running.as_ref()), ("last turn", last)] {
        if let Some(fire) = fire {
            details.push((label, fire.session_id.to_string()));
        }
    }
    details
}

/// Returns a time in the zone of a task, or in UTC if this machine does not know the zone.
fn local(unix_ms: u64, zone: &str) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let Some(at) = at else { return "unknown".to_owned() };
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S (UTC%:z)").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_zone_of_the_task() {
        let at = 1_764_057_600_000;
        assert_eq!(local(at, "Europe/Berlin"), "2025-11-25 09:00:00 (UTC+01:00)");
        assert_eq!(local(at, "Mars/Olympus"), "2025-11-25 08:00:00 (UTC+00:00)");
    }
}
