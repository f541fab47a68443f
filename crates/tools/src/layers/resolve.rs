//! Which tool a name stands for.

use std::sync::Arc;

use super::{Call, CallPolicies, CallService, RawArguments, ResolvedCall, ToolCall};
use crate::{failure::ToolFailure, registry::ToolRegistry, result::ToolResult};

/// Finds the tool in the registry, and what holds for its calls.
#[derive(Debug, Clone)]
pub struct Resolve<S> {
    registry: Arc<ToolRegistry>,
    policies: Arc<CallPolicies>,
    inner: S,
}

impl<S> Resolve<S> {
    /// Looks in `registry` and `policies`, and hands over to `inner`.
    pub fn new(registry: Arc<ToolRegistry>, policies: Arc<CallPolicies>, inner: S) -> Self {
        Self { registry, policies, inner }
    }
}

impl<S: CallService<Call>> CallService<ToolCall> for Resolve<S> {
    fn call(&self, call: ToolCall) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        // Beforehand, since a future keeps the room of what it was made with.
        let resolved = self.resolve(call);
        async move { self.inner.call(resolved?).await }
    }
}

impl<S> Resolve<S> {
    fn resolve(&self, call: ToolCall) -> Result<Call, ToolFailure> {
        let ToolCall { context, arguments } = call;
        let Some(tool) = self.registry.get(&context.tool_name) else {
            let name = context.tool_name.chars().take(128).collect();
            return Err(ToolFailure::NotFound { name });
        };
        let arguments = RawArguments::Text(arguments);
        let policy = self.policies.of(&tool);
        Ok(Box::new(ResolvedCall { context, arguments, tool, policy }))
    }
}
