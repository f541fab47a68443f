//! The agents as models.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use rockbot_contracts::AgentName;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::{identity::Identity, parts::GatewayParts};

/// Lists the agents that the identity may use.
pub(super) fn list(parts: &GatewayParts, identity: &Identity) -> Json<Value> {
    let models: Vec<_> = parts.agents_for(identity).map(model).collect();
    Json(json!({"object": "list", "data": models}))
}

/// Shows one agent.
pub(super) fn show(
    parts: &GatewayParts,
    identity: &Identity,
    name: &str,
) -> Result<Response, ApiError> {
    Ok(Json(model(find(parts, identity, name)?)).into_response())
}

/// Returns the agent of this name, if the identity may use it.
pub(super) fn find<'a>(
    parts: &'a GatewayParts,
    identity: &Identity,
    name: &str,
) -> Result<&'a AgentName, ApiError> {
    parts.agent_for(identity, name).ok_or_else(ApiError::unknown_model)
}

fn model(agent: &AgentName) -> Value {
    // Clients require a time of creation; an agent has none.
    json!({"id": agent, "object": "model", "created": 0, "owned_by": "rockbot"})
}
