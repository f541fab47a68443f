//! What a model may not use is not run, whatever name it found for it.

use super::{Call, CallService};
use crate::{failure::ToolFailure, result::ToolResult};

/// Refuses calls of tools outside of the call's [scope](crate::ToolContext::scope).
///
/// It judges the tool that was found, by the tool's own name and source: neither an alias nor a
/// name that becomes this one by sanitizing is a way around.
#[derive(Debug, Clone)]
pub struct Permit<S>(S);

impl<S> Permit<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for Permit<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let registration = call.tool.registration();
        if let Err(refused) = call.context.scope.check(&registration.name, &registration.source) {
            tracing::info!(
                tool_call_id = %call.context.tool_call_id,
                tool = %registration.name,
                scope = %call.context.scope,
                "the tool is outside of what this turn may use; not calling it"
            );
            return Err(ToolFailure::NotPermitted { reason: refused.to_string() });
        }
        self.0.call(call).await
    }
}
