//! Enforcement of scopes.

use super::{Call, CallService};
use crate::{failure::ToolFailure, result::ToolResult};

/// Rejects calls of tools outside of the call's [scope](crate::ToolContext::scope).
///
/// It checks the resolved tool by its registered name and source, so neither an alias nor a name that
/// is only equal after sanitizing bypasses the scope.
#[derive(Debug, Clone)]
pub struct ScopeCheck<S>(S);

impl<S> ScopeCheck<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: CallService<Call>> CallService<Call> for ScopeCheck<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let registration = call.tool.registration();
        if let Err(error) = call.context.scope.check(&registration.name, &registration.source) {
            tracing::info!(
                tool_call_id = %call.context.tool_call_id,
                tool = %registration.name,
                scope = %call.context.scope,
                "call rejected; tool outside of scope"
            );
            return Err(error.into());
        }
        self.0.call(call).await
    }
}
