//! The scheduled tasks of a person.

use std::{collections::HashSet, sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State};
use futures_util::{StreamExt, stream};
use rockbot_agent::{AgentClient, ConversationRequestError, SendError};
use rockbot_contracts::{
    AgentName, ScheduleRequest, ScheduleResponse, SessionId,
    conversation::ConversationErrorCode,
    schedule::{FireInfo, LastFireInfo, ScheduledTaskInfo},
};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{
    Api, MAX_AGENTS,
    conversations::Owner,
    problem::{Problem, ProblemBody},
    schema::name_of,
};
use crate::identity::Identity;

/// Time limit for the tasks of an agent.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The scheduled tasks of the person, by agent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SchedulePage {
    agents: Vec<AgentScheduleView>,
}

/// The tasks of an agent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentScheduleView {
    /// The agent.
    agent: String,
    /// `running`, `off` if it schedules no tasks, `not_running`, or `silent`.
    state: &'static str,
    /// Time of its store in Unix milliseconds, if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    now_ms: Option<u64>,
    /// The tasks that conversations of the person created, in the order of their next fires.
    tasks: Vec<TaskView>,
}

/// A scheduled task. Its texts are untrusted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskView {
    /// Its name.
    name: String,
    /// Cron expression.
    cron: String,
    /// Time zone that it is read in.
    timezone: String,
    /// The zone belongs to the task.
    has_own_timezone: bool,
    /// Instructions for the agent.
    description: String,
    /// It is removed after its first fire.
    run_once: bool,
    /// Time of the next fire in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ms: Option<u64>,
    /// The fire whose turn has no answer yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<FireView>,
    /// The last fire with an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<LastFireView>,
    /// Fires so far.
    fired: u64,
    /// Fires that were missed.
    missed: u64,
    /// Fires that were skipped while an earlier one ran.
    overlapped: u64,
    /// Fires whose turn failed.
    failed: u64,
    /// Time of its creation in Unix milliseconds.
    created_ms: u64,
    /// The conversation that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_in: Option<String>,
    /// The task whose turn created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by_task: Option<String>,
}

/// A fire of a task.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FireView {
    /// Its time in Unix milliseconds.
    fire_ms: u64,
    /// The conversation of its turn.
    session_id: String,
}

impl From<FireInfo> for FireView {
    fn from(fire: FireInfo) -> Self {
        Self { fire_ms: fire.fire_ms, session_id: fire.session_id.to_string() }
    }
}

/// The last fire of a task with an answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastFireView {
    /// The fire.
    #[serde(flatten)]
    fire: FireView,
    /// Time of its answer in Unix milliseconds.
    ended_ms: u64,
    /// Outcome of the turn.
    outcome: String,
    /// The answer, at most 4 KiB of it.
    text: String,
}

impl From<LastFireInfo> for LastFireView {
    fn from(last: LastFireInfo) -> Self {
        let LastFireInfo { fire, ended_ms, outcome, text } = last;
        Self { fire: fire.into(), ended_ms, outcome: name_of(&outcome), text }
    }
}

impl From<ScheduledTaskInfo> for TaskView {
    fn from(task: ScheduledTaskInfo) -> Self {
        Self {
            name: task.name,
            cron: task.cron,
            timezone: task.timezone,
            has_own_timezone: task.has_own_timezone,
            description: task.description,
            run_once: task.run_once,
            next_ms: task.next_ms,
            running: task.running.map(Into::into),
            last: task.last.map(Into::into),
            fired: task.fired,
            missed: task.missed,
            overlapped: task.overlapped,
            failed: task.failed,
            created_ms: task.created_ms,
            created_in: task.created_in.map(|session| session.to_string()),
            created_by_task: task.created_by_task,
        }
    }
}

/// Lists the scheduled tasks that conversations of the person created.
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules",
    responses((status = 200, body = SchedulePage), (status = "default", body = ProblemBody)))]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<SchedulePage>, Problem> {
    // To an agent, all people of the gateway are one user.
    let own = api.records.list(&Owner::new(&identity.subject)).await?;
    let own: HashSet<_> = own.into_iter().map(|(session, _)| session).collect();
    let agents: Vec<_> = api.parts.agents_for(&identity).take(MAX_AGENTS).cloned().collect();
    let views = stream::iter(agents).map(|agent| view(&api.parts.client, agent, &own));
    Ok(Json(SchedulePage { agents: views.buffered(MAX_AGENTS).collect().await }))
}

async fn view(
    client: &AgentClient,
    agent: AgentName,
    own: &HashSet<SessionId>,
) -> AgentScheduleView {
    let name = agent.to_string();
    let asked = timeout(LIST_TIMEOUT, client.request_schedule(&agent, &ScheduleRequest::List {}));
    let state = match asked.await {
        Ok(Ok(ScheduleResponse::Tasks { now_ms, tasks })) => {
            let is_own = |task: &ScheduledTaskInfo| {
                task.created_in.as_ref().is_some_and(|session| own.contains(session))
            };
            let tasks = tasks.into_iter().filter(is_own).map(Into::into).collect();
            return AgentScheduleView {
                agent: name,
                state: "running",
                now_ms: Some(now_ms),
                tasks,
            };
        }
        Ok(Err(ConversationRequestError::Refused {
            code: ConversationErrorCode::NotPermitted,
            ..
        })) => "off",
        Ok(Err(ConversationRequestError::Send(SendError::AgentUnavailable { .. }))) => {
            "not_running"
        }
        Ok(_) | Err(_) => "silent",
    };
    AgentScheduleView { agent: name, state, now_ms: None, tasks: Vec::new() }
}
