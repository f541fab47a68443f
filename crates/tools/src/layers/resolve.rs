//! Resolution of tool names.

use std::sync::Arc;

use super::{Call, CallPolicies, CallService, RawArguments, ResolvedCall, ToolCall};
use crate::{failure::ToolFailure, registry::ToolRegistry, result::ToolResult};

/// Looks up the tool in the registry, and the policy of its calls.
#[derive(Debug, Clone)]
pub struct Resolve<S> {
    registry: Arc<ToolRegistry>,
    policies: Arc<CallPolicies>,
    inner: S,
}

impl<S> Resolve<S> {
    /// Looks up in `registry` and `policies`, and calls `inner`.
    pub fn new(registry: Arc<ToolRegistry>, policies: Arc<CallPolicies>, inner: S) -> Self {
        Self { registry, policies, inner }
    }
}

impl<S: CallService<Call>> CallService<ToolCall> for Resolve<S> {
    fn call(&self, call: ToolCall) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send {
        // Resolved before the future, which would otherwise store the unresolved call as well.
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
        let policy = self.policies.policy_for(&tool);
        Ok(Box::new(ResolvedCall { context, arguments, tool, policy }))
    }
}
