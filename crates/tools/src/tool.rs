//! The interface of a tool.

use futures_util::future::BoxFuture;
use rockbot_contracts::{RoutingKey, ToolRegistration};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{context::ToolContext, failure::ToolFailure, limits::CallPolicy, result::ToolResult};

/// A function that a model can call by name.
///
/// `arguments` come from the model and are validated against the schema. Everything else that the
/// tool may rely on comes from the system, in the [`ToolContext`].
///
/// # Cancellation
/// The future is dropped when the deadline passes or the call is cancelled. Work that outlives the
/// future (child processes, remote calls) must be stopped by a guard or on
/// [`ToolContext::cancellation`].
pub trait Tool: Send + Sync + 'static {
    /// Returns the name, description, schema, source and hints.
    fn registration(&self) -> &ToolRegistration;

    /// Runs the tool.
    ///
    /// # Errors
    /// A failure becomes a result that the model reads, so its message must say how to correct the call.
    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

    /// Returns `true` if the tool enforces its deadline and cancellation itself, because it can then
    /// report whether it ran. Default `false`: the future is dropped.
    fn enforces_own_deadline(&self) -> bool {
        false
    }

    /// Returns `true` if another process announced the definition, so that it may change at any time.
    /// Default `false`.
    fn is_announced(&self) -> bool {
        false
    }

    /// Returns the routing key of the calls, if another process runs the tool. Default `None`.
    fn invoke_key(&self) -> Option<&RoutingKey> {
        None
    }

    /// Returns `true` if a call that is made again under the same identifier and with a higher
    /// [`ToolContext::attempt`] returns the recorded result or joins the running call, and does not run
    /// the tool twice. Default: announced tools, whose handlers keep a journal.
    fn deduplicates_calls(&self) -> bool {
        self.is_announced()
    }

    /// Returns the tool's own policy for its calls. The operator's policy takes precedence. Read on
    /// every call. Default `None`.
    fn policy(&self) -> Option<CallPolicy> {
        None
    }
}

/// Deserializes the arguments of a call.
///
/// # Errors
/// [`ToolFailure::InvalidArguments`].
pub fn parse_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolFailure> {
    serde_json::from_value(arguments).map_err(|error| ToolFailure::invalid(error.to_string()))
}
