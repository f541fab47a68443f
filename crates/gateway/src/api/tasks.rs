//! The work that conversations of a person delegated.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State};
use futures_util::{StreamExt, stream};
use rockbot_agent::{AgentClient, ConversationRequestError, SendError};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, SessionId, TaskSummary,
    conversation::MAX_PAGE_ITEMS,
};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{
    Api, MAX_AGENTS,
    conversations::{ConversationView, Owner, Record, Turns},
    problem::{Problem, ProblemBody},
    schema::SpendingView,
};
use crate::identity::Identity;

/// Time limit for the work of an agent.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The work that conversations of the person delegated, by agent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskPage {
    agents: Vec<AgentTasks>,
}

/// The work that an agent delegated.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentTasks {
    /// The agent.
    agent: String,
    /// `running`, `not_running`, or `silent`.
    state: &'static str,
    /// The conversations with delegated work, the last active first.
    conversations: Vec<TaskTree>,
    /// Set if the agent has listed as much work as it lists at most, its newest 500: older work may be missing.
    limited: bool,
}

/// A conversation and the work that it delegated.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskTree {
    /// The conversation. Its usage is that of its last answer.
    conversation: ConversationView,
    /// The work, the oldest first.
    tasks: Vec<DelegatedTask>,
}

/// Delegated work. Its texts are untrusted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DelegatedTask {
    /// Its id.
    id: String,
    /// The agent that does it; absent for a sub-agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// Its description, at most 200 characters.
    description: String,
    /// `submitted`, `running`, `input_required`, `cancelling`, `completed`, `failed`, `expired` or `cancelled`.
    state: &'static str,
    /// Set once it has ended.
    ended: bool,
    /// Time at which it was delegated, in Unix milliseconds.
    created_ms: u64,
    /// Time at which it ended, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    /// Its time limit, in Unix milliseconds.
    deadline_ms: u64,
    /// Its spending so far; absent for an open task at another agent, or one that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<SpendingView>,
    /// Its last report; may be empty.
    last_report: String,
    /// Set once its result was passed on to the conversation.
    passed_on: bool,
}

impl From<TaskSummary> for DelegatedTask {
    fn from(task: TaskSummary) -> Self {
        Self {
            id: task.task_id.to_string(),
            agent: task.agent.map(|agent| agent.to_string()),
            description: task.description,
            state: task.state.as_str(),
            ended: task.state.is_terminal(),
            created_ms: task.created_ms,
            ended_ms: task.ended_ms,
            deadline_ms: task.deadline_ms,
            usage: task.usage.map(Into::into),
            last_report: task.last_report,
            passed_on: task.is_folded,
        }
    }
}

/// Lists the work that conversations of the person delegated.
#[utoipa::path(get, path = "/api/v1/tasks", tag = "tasks",
    responses((status = 200, body = TaskPage), (status = "default", body = ProblemBody)))]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<TaskPage>, Problem> {
    // To an agent, all people of the gateway are one user.
    let own: HashMap<_, _> =
        api.records.list(&Owner::new(&identity.subject)).await?.into_iter().collect();
    let agents: Vec<_> = api.parts.agents_for(&identity).take(MAX_AGENTS).cloned().collect();
    let views = stream::iter(agents).map(|agent| view(&api.parts.client, agent, &own, &api.turns));
    Ok(Json(TaskPage { agents: views.buffered(MAX_AGENTS).collect().await }))
}

async fn view(
    client: &AgentClient,
    agent: AgentName,
    own: &HashMap<SessionId, Record>,
    turns: &Turns,
) -> AgentTasks {
    let asked = timeout(LIST_TIMEOUT, client.request(&agent, &ConversationRequest::Tasks {}));
    let (state, tasks) = match asked.await {
        Ok(Ok(ConversationResponse::Tasks { tasks })) => ("running", tasks),
        Ok(Err(ConversationRequestError::Send(SendError::AgentUnavailable { .. }))) => {
            ("not_running", Vec::new())
        }
        Ok(_) | Err(_) => ("silent", Vec::new()),
    };
    let limited = tasks.len() >= MAX_PAGE_ITEMS as usize;
    let conversations = trees(&agent, tasks, own, turns);
    AgentTasks { agent: agent.to_string(), state, conversations, limited }
}

/// Groups work by the conversations of a person. The rest is not the person's.
fn trees(
    agent: &AgentName,
    tasks: Vec<TaskSummary>,
    own: &HashMap<SessionId, Record>,
    turns: &Turns,
) -> Vec<TaskTree> {
    let mut found = HashMap::<SessionId, Vec<DelegatedTask>>::new();
    for task in tasks {
        // An agent knows the id of a conversation with another agent only by chance.
        if own.get(&task.session_id).is_some_and(|record| record.agent == *agent) {
            found.entry(task.session_id.clone()).or_default().push(task.into());
        }
    }
    let trees = found.into_iter().filter_map(|(session, mut tasks)| {
        tasks.sort_by(|one, other| (one.created_ms, &one.id).cmp(&(other.created_ms, &other.id)));
        let record = own.get(&session)?.clone();
        Some(TaskTree { conversation: ConversationView::new(&session, record, turns), tasks })
    });
    let mut trees: Vec<_> = trees.collect();
    trees.sort_by(|one, other| {
        let key = |tree: &TaskTree| std::cmp::Reverse(tree.conversation.last_active_ms);
        (key(one), &one.conversation.id).cmp(&(key(other), &other.conversation.id))
    });
    trees
}
