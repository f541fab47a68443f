//! Audit records of what people and programs do at the gateway.

use std::net::IpAddr;

use rockbot_agent::SendError;
use serde::Serialize;
use tracing::info;

use crate::identity::{Credential, Identity};

/// Longest detail of a record, in bytes.
const MAX_DETAIL_BYTES: usize = 512;

/// An action that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// A login link was used.
    Login,
    /// A session was ended.
    Logout,
    /// A message was sent to an agent.
    Message,
    /// A turn was cancelled.
    Cancel,
    /// An approval request was decided.
    Approval,
    /// A request for input was answered.
    Input,
    /// Dead letters were replayed.
    Replay,
    /// Dead letters were deleted.
    Purge,
    /// A tool was called by hand.
    ToolCall,
    /// A target of push notifications was registered or removed.
    PushTarget,
    /// Arguments, results or the body of a dead letter were read.
    Content,
}

#[derive(Debug, Serialize)]
struct Record<'a> {
    time: String,
    service: &'static str,
    action: AuditAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<Credential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<IpAddr>,
    detail: &'a str,
    outcome: &'a str,
}

/// Writes an audit record to the log, at level info with the target `rockbot_audit`. `detail` names what the
/// action is about, such as an id, and has no content. It is cut at 512 bytes.
pub fn audit(identity: &Identity, action: AuditAction, detail: &str, outcome: &str) {
    let Identity { subject, credential, address, .. } = identity;
    write(Some((subject, *credential)), *address, action, detail, outcome);
}

/// The audit record of an action that may take effect before its outcome is known. It is written when it is dropped:
/// without an outcome, such as when the client disconnects, as `unknown`.
#[derive(Debug)]
pub(crate) struct OpenRecord {
    identity: Identity,
    action: AuditAction,
    detail: String,
    outcome: String,
}

impl OpenRecord {
    /// Starts the record of an action. `detail` is as for [`audit`].
    pub(crate) fn new(identity: &Identity, action: AuditAction, detail: impl Into<String>) -> Self {
        let (identity, detail) = (identity.clone(), detail.into());
        Self { identity, action, detail, outcome: "unknown".to_owned() }
    }

    /// Sets the outcome of a record that is dropped without one.
    pub(crate) fn with_default(mut self, outcome: &str) -> Self {
        outcome.clone_into(&mut self.outcome);
        self
    }

    /// Writes the record with this outcome.
    pub(crate) fn end(self, outcome: &str) {
        drop(self.with_default(outcome));
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        audit(&self.identity, self.action, &self.detail, &self.outcome);
    }
}

/// Returns the outcome of a message or decision for its record: `sent`, `not sent`, or `unknown` if it may have
/// arrived.
pub(crate) fn sent_outcome<'a, T>(result: &Result<T, SendError>, sent: &'a str) -> &'a str {
    match result {
        Ok(_) => sent,
        Err(error) if error.may_have_arrived() => "unknown",
        Err(_) => "not sent",
    }
}

/// Writes the record of a login, whose sender has no identity yet.
pub(crate) fn audit_login(from: Option<IpAddr>, outcome: &str) {
    write(None, from, AuditAction::Login, "", outcome);
}

fn write(
    by: Option<(&str, Credential)>,
    from: Option<IpAddr>,
    action: AuditAction,
    detail: &str,
    outcome: &str,
) {
    let record = Record {
        time: jiff::Timestamp::now().to_string(),
        service: "gateway",
        action,
        subject: by.map(|(subject, _)| subject),
        credential: by.map(|(_, credential)| credential),
        from,
        detail: &detail[..detail.floor_char_boundary(MAX_DETAIL_BYTES)],
        outcome,
    };
    // Strings always serialize.
    let record = serde_json::to_string(&record).unwrap_or_default();
    info!(target: "rockbot_audit", record, "gateway request");
}
