//! Messages, cancels and decisions of a person.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use rockbot_contracts::{
    ApprovalAnswer, ApprovalDecision, ApprovalId, InputAction, InputAnswer, InputId, InputResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::warn;
use utoipa::ToSchema;

use super::{entry::derived_title, records::Record, turns::NewText};
use crate::{
    api::{
        Api,
        body::{JsonBody, idempotency_key},
        problem::{Problem, ProblemBody},
    },
    clock::now_ms,
    decision::parse_decision,
    guard::{AuditAction, OpenRecord},
    identity::Identity,
};

/// Largest text of a message, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A message to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewMessage {
    /// The text, 1 byte to 64 KiB.
    text: String,
    /// Set if the client shows requests of MCP servers for input (`input_asked`), which a person can answer.
    /// Otherwise they are declined.
    #[serde(default)]
    accepts_input: bool,
}

/// A response to a request for input.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewInput {
    /// `accept`, `decline` or `cancel`.
    action: String,
    /// The values of an accepted form, by the names of its fields.
    #[serde(default)]
    #[schema(value_type = Object)]
    content: Map<String, Value>,
}

/// A message that was accepted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageSent {
    /// Its id in events.
    message_id: String,
    /// `accepted`, or `repeated` if it had been sent before under the same key.
    state: &'static str,
}

/// A request that was passed on; the events show its effect.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SentState {
    /// Always `sent`.
    state: &'static str,
}

/// A decision on an approval request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Decision {
    /// The hash of the call, as in the approval request.
    call_hash: String,
    /// `allow`, `allow_in_session` or `deny`.
    decision: String,
    /// Reason of a denial, which the model reads; at most 1 KiB.
    reason: Option<String>,
}

/// Sends a message to the agent of a conversation, once for each idempotency key.
#[utoipa::path(post, path = "/api/v1/conversations/{id}/messages", tag = "conversations",
    request_body = NewMessage,
    params(("id" = String, Path, description = "The conversation"),
        ("Idempotency-Key" = String, Header, description = "8 to 128 visible ASCII characters")),
    responses((status = 202, body = MessageSent), (status = "default", body = ProblemBody)))]
pub(crate) async fn send(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    headers: HeaderMap,
    JsonBody(new): JsonBody<NewMessage>,
) -> Result<(StatusCode, Json<MessageSent>), Problem> {
    let key = idempotency_key(&headers).map_err(Problem::not_executed)?;
    if new.text.trim().is_empty() || new.text.len() > MAX_TEXT_BYTES {
        let detail = format!("the text must have 1 to {MAX_TEXT_BYTES} bytes");
        return Err(Problem::invalid(detail).not_executed());
    }
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let title = derived_title(&new.text);
    let text = NewText { text: new.text, accepts_input: new.accepts_input };
    let audited = OpenRecord::new(&identity, AuditAction::Message, id.as_str());
    let sent = api.turns.send(&conversation, key, text).await;
    let outcome = match &sent {
        Ok(sent) if sent.repeated => "repeated",
        Ok(_) => "accepted",
        Err(problem) => problem.audited("failed"),
    };
    audited.end(outcome);
    let sent = sent?;
    if !sent.repeated {
        let touch = |record: &mut Record| {
            record.last_active_ms = now_ms();
            if record.title.is_empty() {
                title.clone_into(&mut record.title);
            }
        };
        let touched = api.records.update(&conversation.owner, &conversation.session, touch).await;
        if let Err(error) = touched {
            // The message was sent: an error here would say otherwise.
            warn!(session_id = %conversation.session, %error, "conversation not updated");
        }
    }
    let message_id = sent.message.to_string();
    Ok((StatusCode::ACCEPTED, Json(MessageSent { message_id, state: outcome })))
}

/// Cancels the running turn of a conversation.
#[utoipa::path(post, path = "/api/v1/conversations/{id}/cancel", tag = "conversations",
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 202, body = SentState), (status = "default", body = ProblemBody)))]
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<SentState>), Problem> {
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let audited = OpenRecord::new(&identity, AuditAction::Cancel, id.as_str());
    let sent = api.turns.cancel(&conversation).await;
    let outcome = sent.as_ref().map_or_else(|problem| problem.audited("failed"), |()| "sent");
    audited.end(outcome);
    sent?;
    Ok((StatusCode::ACCEPTED, Json(SentState { state: "sent" })))
}

/// Decides on an approval request.
#[utoipa::path(post, path = "/api/v1/conversations/{id}/approvals/{approvalId}", tag = "conversations",
    request_body = Decision,
    params(("id" = String, Path, description = "The conversation"),
        ("approvalId" = String, Path, description = "The approval request")),
    responses((status = 202, body = SentState), (status = "default", body = ProblemBody)))]
pub(crate) async fn decide(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path((id, approval_id)): Path<(String, String)>,
    JsonBody(new): JsonBody<Decision>,
) -> Result<(StatusCode, Json<SentState>), Problem> {
    let Decision { call_hash, decision: name, reason } = new;
    let decision = parse_decision(&name).ok_or_else(|| {
        Problem::invalid("decision must be allow, allow_in_session or deny").not_executed()
    })?;
    let is_valid = reason.as_ref().is_none_or(|reason| {
        decision == ApprovalDecision::Deny && reason.len() <= ApprovalAnswer::MAX_REASON_BYTES
    });
    if !is_valid {
        let detail = "a reason goes with deny only, and has at most 1024 bytes";
        return Err(Problem::invalid(detail).not_executed());
    }
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let approval_id = ApprovalId::new(approval_id.as_str())
        .map_err(|_| Problem::not_found("no such approval request").not_executed())?;
    let detail = format!("{approval_id} {name} {call_hash}");
    let session_id = conversation.session.clone();
    let answer = ApprovalAnswer { session_id, approval_id, call_hash, decision, reason };
    let audited = OpenRecord::new(&identity, AuditAction::Approval, detail);
    let sent = api.turns.decide(&conversation, &identity.subject, answer).await;
    let outcome = sent.as_ref().map_or_else(|problem| problem.audited("refused"), |()| "sent");
    audited.end(outcome);
    sent?;
    Ok((StatusCode::ACCEPTED, Json(SentState { state: "sent" })))
}

/// Answers a request of an MCP server for input.
#[utoipa::path(post, path = "/api/v1/conversations/{id}/inputs/{inputId}", tag = "conversations",
    request_body = NewInput,
    params(("id" = String, Path, description = "The conversation"),
        ("inputId" = String, Path, description = "The request for input")),
    responses((status = 202, body = SentState), (status = "default", body = ProblemBody)))]
pub(crate) async fn answer_input(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path((id, input_id)): Path<(String, String)>,
    JsonBody(new): JsonBody<NewInput>,
) -> Result<(StatusCode, Json<SentState>), Problem> {
    let action = match new.action.as_str() {
        "accept" => InputAction::Accept,
        "decline" => InputAction::Decline,
        "cancel" => InputAction::Cancel,
        _ => {
            let detail = "action must be accept, decline or cancel";
            return Err(Problem::invalid(detail).not_executed());
        }
    };
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let input_id = InputId::new(input_id.as_str())
        .map_err(|_| Problem::not_found("no such request for input").not_executed())?;
    let detail = format!("{input_id} {}", new.action);
    let response = InputResponse { action, content: new.content };
    let answer = InputAnswer { session_id: conversation.session.clone(), input_id, response };
    let audited = OpenRecord::new(&identity, AuditAction::Input, detail);
    let sent = api.turns.answer_input(&conversation, &identity.subject, answer).await;
    let outcome = sent.as_ref().map_or_else(|problem| problem.audited("refused"), |()| "sent");
    audited.end(outcome);
    sent?;
    Ok((StatusCode::ACCEPTED, Json(SentState { state: "sent" })))
}
