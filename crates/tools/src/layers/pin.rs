//! Enforcement of pinned tool definitions.

use std::sync::Arc;

use rockbot_contracts::Executed;

use super::{Call, CallService};
use crate::{
    failure::ToolFailure,
    outputs::TOOL_OUTPUT,
    pins::{PinnedDefinition, PinnedTool, ToolPins},
    registry::RegisteredTool,
    result::ToolResult,
};

/// Rejects calls of announced tools whose definition changed since it was approved.
///
/// It compares the definition of the tool that will run, so a change between the model's list and the
/// call is detected. Tools of this process change only with the program.
#[derive(Debug, Clone)]
pub struct PinCheck<S> {
    pins: Option<Arc<ToolPins>>,
    inner: S,
}

impl<S> PinCheck<S> {
    pub(crate) fn new(pins: Option<Arc<ToolPins>>, inner: S) -> Self {
        Self { pins, inner }
    }
}

impl<S: CallService<Call>> CallService<Call> for PinCheck<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        if let Some(pins) = &self.pins {
            // Boxed, so that running calls stay small.
            let checked = Box::pin(check(pins, &call.tool)).await;
            if let Err(failure) = checked {
                let tool = &call.tool.registration().name;
                tracing::warn!(%tool, reason = %failure, "call rejected; tool definition not trusted");
                return Err(failure);
            }
        }
        self.inner.call(call).await
    }
}

/// Checks that the definition of a tool is trusted.
///
/// # Errors
/// Returns the reason why it may not be called, for a model.
pub async fn check(pins: &ToolPins, tool: &RegisteredTool) -> Result<(), ToolFailure> {
    if !tool.tool().is_announced() {
        return Ok(());
    }
    let registration = tool.registration();
    let (source, name) = (registration.source.to_string(), registration.name.as_str());
    let definition = || PinnedDefinition::from_registration(registration);
    // Each handler of a shared store offers the tool that reads stored outputs.
    let invoke_key = tool.tool().invoke_key().filter(|_| name != TOOL_OUTPUT);
    let namespace = PinnedTool::HANDLERS;
    let pinned = PinnedTool { namespace, tool: name, source: &source, name, invoke_key };
    match pins.is_trusted(pinned, tool.fingerprint(), definition).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(not_approved()),
        Err(error) => Err(pins_unavailable(&error)),
    }
}

/// Creates the failure for a tool whose definition is not approved.
#[must_use]
pub fn not_approved() -> ToolFailure {
    let reason =
        "the definition of this tool changed since it was approved; an operator must approve it \
         before it is used again"
            .to_owned();
    ToolFailure::NotPermitted { reason }
}

/// Creates the failure for a tool when the approved definitions cannot be read.
pub fn pins_unavailable(error: &rockbot_store::StoreError) -> ToolFailure {
    tracing::warn!(%error, "tool pins unavailable");
    let message = "the store of trusted tools is unavailable; call again later".to_owned();
    ToolFailure::Unavailable { message, executed: Executed::No }
}
