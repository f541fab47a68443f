//! Decisions on the approval requests of turns that a program started.

use std::{collections::HashMap, sync::Arc};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use rockbot_contracts::{AgentName, ApprovalAnswer, ApprovalId, ReplyBody, SessionId};
use serde::Deserialize;

use super::error::ApiError;
use crate::{
    decision::parse_decision,
    guard::{AuditAction, OpenRecord, sent_outcome},
    identity::Identity,
    parts::GatewayParts,
    turns::Followed,
};

/// Maximum number of open approval requests.
const MAX_OPEN: usize = 4096;

/// The open approval requests of the turns that requests of this process follow.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenApprovals(Arc<Mutex<HashMap<ApprovalId, Open>>>);

#[derive(Debug, Clone)]
struct Open {
    subject: Arc<str>,
    agent: AgentName,
    session: SessionId,
    /// Number of requests that follow the turn and saw the approval request.
    seen_by: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Decision {
    call_hash: String,
    decision: String,
}

impl OpenApprovals {
    /// Decides on an approval request, in a turn that the same identity started.
    ///
    /// # Errors
    /// When the body is invalid, no such request is open, or the decision is not sent.
    pub(super) async fn decide(
        &self,
        parts: &GatewayParts,
        identity: &Identity,
        id: &str,
        body: &[u8],
    ) -> Result<Response, ApiError> {
        let Decision { call_hash, decision: name } =
            serde_json::from_slice(body).map_err(|error| ApiError::malformed(error.to_string()))?;
        let decision = parse_decision(&name).ok_or_else(|| {
            let message = "the decision must be allow, allow_in_session or deny";
            ApiError::invalid("decision", message)
        })?;
        let id = ApprovalId::new(id).map_err(|_| ApiError::unknown_approval())?;
        let open = self.0.lock().get(&id).filter(|open| open.subject == identity.subject).cloned();
        let Open { agent, session, .. } = open.ok_or_else(ApiError::unknown_approval)?;
        let answer = ApprovalAnswer {
            session_id: session,
            approval_id: id.clone(),
            call_hash,
            decision,
            reason: None,
        };
        let record = OpenRecord::new(identity, AuditAction::Approval, id.as_str());
        let sent = parts.client.answer_approval(&agent, &answer).await;
        record.end(sent_outcome(&sent, &name));
        sent?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Starts to watch the turn of a request for approval requests.
    pub(super) fn watch(&self, identity: &Identity, agent: &AgentName) -> ApprovalWatch {
        ApprovalWatch {
            open: self.clone(),
            subject: identity.subject.clone(),
            agent: agent.clone(),
            seen: Vec::new(),
        }
    }
}

/// The approval requests that one request saw. Dropping it closes those that no other request saw.
#[derive(Debug)]
pub(super) struct ApprovalWatch {
    open: OpenApprovals,
    subject: Arc<str>,
    agent: AgentName,
    seen: Vec<ApprovalId>,
}

impl ApprovalWatch {
    /// Records an approval request among the replies.
    pub(super) fn observe(&mut self, followed: &Followed) {
        let Followed::Reply(reply) = followed else { return };
        let ReplyBody::ApprovalAsked { approval_id, .. } = &reply.body else { return };
        let mut open = self.open.0.lock();
        if open.len() >= MAX_OPEN && !open.contains_key(approval_id) {
            return;
        }
        let new = Open {
            subject: self.subject.clone(),
            agent: self.agent.clone(),
            session: reply.session_id.clone(),
            seen_by: 0,
        };
        open.entry(approval_id.clone()).or_insert(new).seen_by += 1;
        self.seen.push(approval_id.clone());
    }
}

impl Drop for ApprovalWatch {
    fn drop(&mut self) {
        let mut open = self.open.0.lock();
        for id in &self.seen {
            let Some(approval) = open.get_mut(id) else { continue };
            approval.seen_by -= 1;
            if approval.seen_by == 0 {
                open.remove(id);
            }
        }
    }
}
