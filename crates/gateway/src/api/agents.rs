//! The agents that a person may use.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State};
use futures_util::{StreamExt, stream};
use rockbot_agent::{AgentClient, ConversationRequestError, SendError};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, conversation::AgentOverview,
};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{
    Api, MAX_AGENTS,
    problem::{Problem, ProblemBody},
    schema::HintsView,
};
use crate::identity::Identity;

/// Time limit for the overview of an agent.
const OVERVIEW_TIMEOUT: Duration = Duration::from_secs(3);

/// The agents.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentPage {
    agents: Vec<AgentView>,
}

/// An agent. All but its name and state is absent unless it runs.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentView {
    /// Its name.
    name: String,
    /// `running`, `not_running`, or `silent` if it did not respond in time.
    state: &'static str,
    /// Its purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The tools that its turns may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<AgentToolView>>,
    /// Number of further tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_tools: Option<u32>,
}

/// A tool that an agent may use. Its summary is untrusted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentToolView {
    /// Its name.
    name: String,
    /// Its source.
    source: String,
    /// The first sentence of its description.
    summary: String,
    /// Possible effects of a call.
    hints: HintsView,
    /// A handler announced it.
    is_announced: bool,
}

/// Lists the agents that the person may use.
#[utoipa::path(get, path = "/api/v1/agents", tag = "conversations",
    responses((status = 200, body = AgentPage), (status = "default", body = ProblemBody)))]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<AgentPage>, Problem> {
    let agents: Vec<_> = api.parts.agents_for(&identity).take(MAX_AGENTS).cloned().collect();
    let views = stream::iter(agents).map(|agent| view(&api.parts.client, agent));
    Ok(Json(AgentPage { agents: views.buffered(MAX_AGENTS).collect().await }))
}

async fn view(client: &AgentClient, agent: AgentName) -> AgentView {
    let asked = timeout(OVERVIEW_TIMEOUT, client.request(&agent, &ConversationRequest::Agent {}));
    let state = match asked.await {
        Ok(Ok(ConversationResponse::Agent { agent })) => return running(agent),
        Ok(Err(ConversationRequestError::Send(SendError::AgentUnavailable { .. }))) => {
            "not_running"
        }
        Ok(_) | Err(_) => "silent",
    };
    let (description, model, tools, more_tools) = (None, None, None, None);
    AgentView { name: agent.to_string(), state, description, model, tools, more_tools }
}

fn running(agent: AgentOverview) -> AgentView {
    let tools = agent.tools.into_iter().map(|tool| AgentToolView {
        name: tool.name,
        source: tool.source.to_string(),
        summary: tool.summary,
        hints: tool.hints.into(),
        is_announced: tool.is_announced,
    });
    AgentView {
        name: agent.name.to_string(),
        state: "running",
        description: Some(agent.description),
        model: Some(agent.model),
        tools: Some(tools.collect()),
        more_tools: Some(agent.more_tools),
    }
}
