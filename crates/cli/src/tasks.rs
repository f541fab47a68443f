//! `rockbot tasks`: lists, shows and cancels work that agents delegated.

use std::time::SystemTime;

use rockbot_agent::ConversationRequestError;
use rockbot_contracts::{
    ConversationRequest, ConversationResponse, TaskState, TaskSummary,
    conversation::MAX_PAGE_ITEMS, envelope::unix_ms,
};
use rockbot_service::exit;
use serde_json::json;

use crate::{
    arguments::Tasks,
    failure::{Failure, Outcome},
    print::{note, outln},
    render,
    sessions::access::ConversationAccess,
    settings::Settings,
    stored_conversations::Purpose,
};

/// Longest description in the list, in characters.
const DESCRIPTION_CHARS: usize = 60;

pub(crate) async fn run(mut settings: Settings, command: Tasks, json: bool) -> Outcome {
    if let Some(name) = command.agent() {
        settings.agent.name.clone_from(name);
    }
    if settings.embeds() {
        return Err(Failure::usage(
            "sub-agents run in an agent: name the running fleet with --bus; those of `rockbot chat` are \
             shown there",
        ));
    }
    let agent = ConversationAccess::open(&settings, Purpose::Read).await?;
    let request = match &command {
        Tasks::List { .. } => ConversationRequest::Tasks {},
        Tasks::Show { task, .. } => ConversationRequest::Task { task_id: task.clone() },
        Tasks::Cancel { task, .. } => ConversationRequest::CancelTask { task_id: task.clone() },
    };
    let response = agent.request(&request).await;
    agent.close().await;
    match response? {
        ConversationResponse::Tasks { tasks } => list(&tasks, json),
        ConversationResponse::Task { task, result } => {
            show(&task, &result, json)?;
            let is_cancel = matches!(command, Tasks::Cancel { .. });
            let is_cancelled = task.state == TaskState::Cancelled;
            Ok(if is_cancel && !is_cancelled { exit::ANSWERED_WITH_ERROR } else { exit::OK })
        }
        _ => Err(ConversationRequestError::UnexpectedResponse.into()),
    }
}

/// Prints the work of each conversation.
pub(crate) fn list(tasks: &[TaskSummary], json: bool) -> Outcome {
    if json {
        outln!("{}", render::json(&json!(tasks)))?;
        return Ok(exit::OK);
    }
    if tasks.is_empty() {
        note!("the agent has delegated no work");
        return Ok(exit::OK);
    }
    let now = unix_ms(SystemTime::now()) / 1000;
    // The work of a conversation follows it.
    let mut rows = Vec::new();
    let mut sessions: Vec<_> = tasks.iter().map(|task| &task.session_id).collect();
    sessions.dedup();
    let mut shown = std::collections::HashSet::new();
    for session in sessions.into_iter().filter(|session| shown.insert(*session)) {
        let title = format!("conversation {}", render::short_line(session.as_str(), 64));
        rows.push([title.as_str(), "", "", "", "", ""].map(str::to_owned).to_vec());
        for task in tasks.iter().filter(|task| task.session_id == *session) {
            rows.push(vec![
                format!("└ {}", render::short_line(task.task_id.as_str(), 32)),
                state(task),
                render::ago(task.created_ms / 1000, now),
                spent(task),
                task.agent
                    .as_ref()
                    .map(|agent| render::short_line(agent.as_str(), 32))
                    .unwrap_or_default(),
                render::short_line(&task.description, DESCRIPTION_CHARS),
            ]);
        }
    }
    outln!(
        "{}",
        render::table(&["task", "state", "started", "spent", "agent", "description"], rows)
    )?;
    if tasks.len() >= MAX_PAGE_ITEMS as usize {
        note!("only the newest {MAX_PAGE_ITEMS} are listed");
    }
    Ok(exit::OK)
}

fn show(task: &TaskSummary, result: &str, json: bool) -> Result<(), Failure> {
    if json {
        outln!("{}", render::json(&json!({"task": task, "result": result})))?;
        return Ok(());
    }
    let now = unix_ms(SystemTime::now()) / 1000;
    let rows = [
        ("task", render::clean(task.task_id.as_str())),
        ("state", state(task)),
        ("conversation", render::clean(task.session_id.as_str())),
        (
            "transcript",
            format!("rockbot sessions show {}", render::clean(task.task_session_id.as_str())),
        ),
        (
            "agent",
            task.agent.as_ref().map(|agent| render::clean(agent.as_str())).unwrap_or_default(),
        ),
        ("started", render::ago(task.created_ms / 1000, now)),
        ("spent", spent(task)),
        ("last report", render::short_line(&task.last_report, 500)),
        ("description", render::short_line(&task.description, 500)),
    ];
    let rows = rows.into_iter().map(|(name, value)| vec![render::dim(name), value]);
    outln!("{}", render::table(&["", ""], rows))?;
    if !result.is_empty() {
        outln!("\n{}", render::clean(result))?;
    }
    Ok(())
}

fn state(task: &TaskSummary) -> String {
    let state = task.state.as_str();
    match task.state {
        TaskState::Completed => render::good(state),
        TaskState::Failed | TaskState::Expired => render::bad(state),
        _ => state.to_owned(),
    }
}

fn spent(task: &TaskSummary) -> String {
    let Some(usage) = &task.usage else { return "–".to_owned() };
    let tokens = usage.prompt_tokens + usage.completion_tokens;
    let calls =
        render::count(usize::try_from(usage.model_calls).unwrap_or(usize::MAX), "model call");
    format!("{calls}, {tokens} tokens")
}
