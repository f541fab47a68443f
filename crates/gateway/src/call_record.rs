//! Audit records of calls of tools.

use rockbot_contracts::{Executed, ToolCallId};
use rockbot_mcp_server::{CallOutcome, ObservedCall};

use crate::{
    guard::{AuditAction, OpenRecord, audit},
    identity::Identity,
};

/// The audit records of a call: the first is written when it is sent, the second with the outcome. Dropped without
/// one, the call is recorded as abandoned.
pub(crate) struct CallRecord(OpenRecord);

impl CallRecord {
    /// Writes the record that remains of a process that dies during the call.
    pub(crate) fn sent(identity: &Identity, tool: &str, id: &ToolCallId) -> Self {
        let call = format!("{tool} {id}");
        audit(identity, AuditAction::ToolCall, &call, "sent");
        Self(OpenRecord::new(identity, AuditAction::ToolCall, call).with_default("abandoned"))
    }

    /// Writes the record of a call that ended like this.
    pub(crate) fn ended(self, outcome: &CallOutcome) {
        let (outcome, executed) = match outcome {
            Ok(result) if result.is_error => ("tool_error".to_owned(), Executed::Yes),
            Ok(_) => ("ok".to_owned(), Executed::Yes),
            Err(failure) => (failure.code().as_str().to_owned(), failure.executed()),
        };
        self.0.end(&format!("{outcome}, executed: {executed}"));
    }

    /// Writes the record of a call that was refused with this code.
    pub(crate) fn refused(self, code: &str) {
        self.0.end(code);
    }
}

impl ObservedCall for CallRecord {
    fn end(self: Box<Self>, outcome: &CallOutcome) {
        (*self).ended(outcome);
    }
}
