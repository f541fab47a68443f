//! Providers: families of tools with one origin.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{ProviderInstructions, ScriptIsolation, ToolSource, outside_text};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    context::ToolContext, failure::ToolFailure, guides::Guide, result::ToolResult, tool::Tool,
};

/// Maximum length of the instructions of one provider, in characters.
pub const MAX_INSTRUCTIONS: usize = ProviderInstructions::MAX_TEXT;

/// Error of preparing a provider. Its tools may still be offered, and fail with their own reasons.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct WarmUpError {
    /// Source of the provider's tools.
    pub origin: ToolSource,
    /// Cause, and what to do.
    pub reason: String,
}

/// A family of tools with one origin: built in, configured, or of another system.
///
/// A process assembles its tools from a list of providers. Calls by models go through the
/// [`ToolExecutor`](crate::ToolExecutor), which takes the tools from a [`ToolRegistry`](crate::ToolRegistry).
pub trait ToolProvider: Send + Sync + 'static {
    /// Returns the kind of origin and, where several exist, its name: `files`, `mcp:github`.
    fn source(&self) -> ToolSource;

    /// Returns the prefix of the names of its tools, without a separator; `None` when they have none.
    fn namespace(&self) -> Option<&str> {
        None
    }

    /// Returns the tools that it offers now.
    fn list(&self) -> Vec<Arc<dyn Tool>>;

    /// Finds a tool by its name.
    fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.list().into_iter().find(|tool| tool.registration().name == name)
    }

    /// Returns whether it offers a tool of this name.
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Runs a tool directly: without the layers, so for callers that apply their own rules.
    ///
    /// # Errors
    /// [`ToolFailure::NotFound`] for an unknown name, and those of the tool.
    ///
    /// # Cancellation
    /// As of [`Tool::call`].
    fn execute<'a>(
        &'a self,
        name: &'a str,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            match self.get(name) {
                Some(tool) => tool.call(arguments, context).await,
                None => Err(ToolFailure::NotFound { name: name.to_owned() }),
            }
        })
    }

    /// Prepares the provider before its tools are offered: reads documents, opens connections. Bounded
    /// by the provider itself. Does nothing by default.
    ///
    /// # Errors
    /// See [`WarmUpError`].
    ///
    /// # Cancellation
    /// Dropping the future leaves the provider as it was.
    fn warm_up(&self) -> BoxFuture<'_, Result<(), WarmUpError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns what a model should know before it uses any of the tools, if there is anything. Read
    /// through [`bounded_instructions`], because it may come from outside.
    fn instructions(&self) -> Option<String> {
        None
    }

    /// Returns the guides on its tools. Handlers announce them, and agents offer those of their own tools.
    fn guides(&self) -> Vec<Guide> {
        Vec::new()
    }

    /// Returns the isolation of scripts that its tools run, if they run some and it is known.
    fn script_isolation(&self) -> Option<ScriptIsolation> {
        None
    }

    /// Returns a receiver that is notified when the list or the instructions change; `None` when they
    /// never do.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// Returns the instructions of `provider` for a model: cleaned as outside text, and at most
/// [`MAX_INSTRUCTIONS`] characters long.
#[must_use]
pub fn bounded_instructions(provider: &dyn ToolProvider) -> Option<String> {
    let text = provider.instructions()?;
    let text: String = outside_text::stripped(&text).chars().take(MAX_INSTRUCTIONS).collect();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
