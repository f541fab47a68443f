//! Approval of calls.

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

/// Requests approval of permitted and valid calls. The call runs exactly as approved.
///
/// The time that the user takes to respond is added to the deadline.
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
            let (registration, tool) = (call.tool.registration(), call.tool.tool());
            let request = ApprovalRequest {
                context: &call.context,
                name: &registration.name,
                source: &registration.source,
                hints: registration.hints,
                announced_for: tool.invoke_key().filter(|_| tool.is_announced()),
                fingerprint: call.tool.fingerprint(),
                arguments,
            };
            let requested = Instant::now();
            ask(approver.as_ref(), request).await?;
            call.context.deadline += requested.elapsed();
        }
        self.inner.call(call).await
    }
}

/// Waits for the approval of a call, and adds the time to the [`approval_time`] of its context.
///
/// [`approval_time`]: crate::ToolContext::approval_time
///
/// # Errors
/// [`ToolFailure::NotPermitted`] if it is refused, [`ToolFailure::Cancelled`] if it is cancelled.
pub async fn ask(approver: &dyn Approver, request: ApprovalRequest<'_>) -> Result<(), ToolFailure> {
    let requested = Instant::now();
    let verdict = tokio::select! {
        biased;
        () = request.context.cancellation.cancelled() => {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        verdict = approver.decide(request) => verdict,
    };
    request.context.approval_time.add(requested.elapsed());
    match verdict {
        Verdict::Allow => Ok(()),
        Verdict::Refuse { reason } => Err(ToolFailure::NotPermitted { reason }),
    }
}
