//! The card of an agent: its address, abilities and requirements.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use rockbot_contracts::{AgentName, ConversationRequest, ConversationResponse};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::message::{MEDIA_TYPES, OUTPUT_TYPE};
use crate::{a2a_parts::CardSigner, guard::Guard, hex::hex, identity::Right, parts::GatewayParts};

/// Time limit for the description of an agent.
const DESCRIPTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which clients may keep a card.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, max-age=60");

/// Returns the card of an agent.
pub(super) async fn show(
    parts: &GatewayParts,
    guard: &Guard,
    agent: &AgentName,
    headers: &HeaderMap,
) -> Response {
    let description = description(parts, agent).await;
    let has_push = parts.a2a.push.is_some();
    let mut card = card(agent, description.as_deref(), guard.public_origin(), has_push);
    let signer = parts.a2a.signer.as_deref();
    // Signatures of the same card differ, so the tag is a weak one without them.
    let tagged = format!("{card}{}", signer.map(CardSigner::key_id).unwrap_or_default());
    let tag = format!("W/\"{}\"", &hex(&Sha256::digest(tagged))[..32]);
    if let Some(signer) = signer {
        match signer.sign(&card) {
            Ok(signature) => card["signatures"] = json!([signature]),
            Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(card).into_response()
    };
    // The description may appear soon.
    if description.is_some() {
        response.headers_mut().insert(header::CACHE_CONTROL, CACHE_CONTROL);
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Returns the purpose of an agent; `None` if it does not run.
async fn description(parts: &GatewayParts, agent: &AgentName) -> Option<String> {
    let request = ConversationRequest::Agent {};
    let response = timeout(DESCRIPTION_TIMEOUT, parts.client.request(agent, &request)).await;
    match response {
        Ok(Ok(ConversationResponse::Agent { agent })) => Some(agent.description),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the card, without signatures. It has no empty value, see [`CardSigner::sign`].
fn card(agent: &AgentName, description: Option<&str>, origin: &str, has_push: bool) -> Value {
    let description = description.map(str::trim).filter(|text| !text.is_empty());
    let description = description.map_or_else(|| format!("The agent {agent}."), str::to_owned);
    let mut input_types = vec![OUTPUT_TYPE, "application/json"];
    input_types.extend(MEDIA_TYPES);
    let url = format!("{origin}/agents/{agent}");
    let interface =
        |binding: &str| json!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"});
    json!({
        "name": agent,
        "description": description,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [interface("JSONRPC"), interface("HTTP+JSON")],
        "capabilities": {
            "streaming": true,
            "pushNotifications": has_push,
            "extendedAgentCard": false,
        },
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {
            "scheme": "Bearer",
            "description": "A token of the gateway, for the face a2a.",
        }}},
        "securityRequirements": [{"schemes": {"bearer": {"list": [Right::Talk.as_str()]}}}],
        "defaultInputModes": input_types,
        "defaultOutputModes": [OUTPUT_TYPE],
        "skills": [{
            "id": agent,
            "name": agent,
            "description": description,
            "tags": ["conversation"],
        }],
    })
}
