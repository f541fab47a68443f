//! Somebody is asked before a call runs.

use std::sync::Arc;

use rockbot_contracts::Executed;
use tokio::time::Instant;

use super::{Call, CallService, RawArguments};
use crate::{
    approval::{ApprovalRequest, Approver},
    failure::ToolFailure,
    hooks::Verdict,
    result::ToolResult,
};

/// Asks whether a call may run that is permitted and valid; what runs is what was asked about.
///
/// The time that a person takes to answer is not the tool's: the deadline moves by it.
#[derive(Debug, Clone)]
pub struct Approve<S> {
    approver: Option<Arc<dyn Approver>>,
    inner: S,
}

impl<S> Approve<S> {
    pub(crate) fn new(approver: Option<Arc<dyn Approver>>, inner: S) -> Self {
        Self { approver, inner }
    }
}

impl<S: CallService<Call>> CallService<Call> for Approve<S> {
    async fn call(&self, mut call: Call) -> Result<ToolResult, ToolFailure> {
        if let (Some(approver), RawArguments::Valid(arguments)) = (&self.approver, &call.arguments)
        {
            let registration = call.tool.registration();
            let question = ApprovalRequest {
                context: &call.context,
                name: &registration.name,
                source: &registration.source,
                hints: registration.hints,
                fingerprint: call.tool.fingerprint(),
                arguments,
            };
            let asked = Instant::now();
            ask(approver.as_ref(), question).await?;
            call.context.deadline += asked.elapsed();
        }
        self.inner.call(call).await
    }
}

/// Waits until a call may run.
///
/// # Errors
/// Why it may not.
pub async fn ask(
    approver: &dyn Approver,
    question: ApprovalRequest<'_>,
) -> Result<(), ToolFailure> {
    let verdict = tokio::select! {
        biased;
        () = question.context.cancellation.cancelled() => {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        verdict = approver.decide(question) => verdict,
    };
    match verdict {
        Verdict::Allow => Ok(()),
        Verdict::Refuse { reason } => Err(ToolFailure::NotPermitted { reason }),
    }
}
