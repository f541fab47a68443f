//! A tool: a definition for the model, and a call.

use futures_util::future::BoxFuture;
use rockbot_contracts::ToolRegistration;
use serde_json::Value;

use crate::{context::ToolContext, failure::ToolFailure, limits::CallPolicy, result::ToolResult};

/// Something a model can call by name.
///
/// `arguments` come from the model and have been validated against the schema; everything else the
/// tool may rely on comes from the system, in the [`ToolContext`].
///
/// # Cancellation
/// The future is dropped when the deadline passes or the call is cancelled; work that outlives a
/// future (child processes, remote calls) must be stopped by a guard or on
/// [`ToolContext::cancellation`].
pub trait Tool: Send + Sync + 'static {
    /// Name, description, schema, source and hints.
    fn registration(&self) -> &ToolRegistration;

    /// Runs the tool.
    ///
    /// # Errors
    /// A failure becomes a result that the model can read and correct itself from, so its message
    /// says what to do differently.
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

    /// Whether the tool ends by its deadline, and on cancellation, by itself, because it can then
    /// say whether it ran. Default false: its future is dropped instead.
    fn keeps_deadline(&self) -> bool {
        false
    }

    /// Whether its definition is what another process announces, so that it may change at any time.
    /// Default false.
    fn is_announced(&self) -> bool {
        false
    }

    /// What whoever made the tool says about its calls. What an operator says of it goes before.
    /// Asked on every call. Default nothing.
    fn policy(&self) -> Option<CallPolicy> {
        None
    }
}
