//! A tool is what it was when it was approved, or it is not called.

use std::sync::Arc;

use rockbot_contracts::Executed;

use super::{Call, CallService};
use crate::{
    failure::ToolFailure,
    pins::{PinnedDefinition, PinnedTool, ToolPins},
    registry::RegisteredTool,
    result::ToolResult,
};

/// Refuses calls of tools that handlers run and whose definition changed since it was approved.
///
/// It compares the definition of the very tool that will run, so a change between the model's list
/// and the call is noticed. Tools of this process change with its program alone.
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
            let checked = check(pins, &call.tool).await;
            if let Err(failure) = checked {
                let tool = &call.tool.registration().name;
                tracing::warn!(%tool, reason = %failure, "not calling a tool");
                return Err(failure);
            }
        }
        self.inner.call(call).await
    }
}

/// Whether the definition of a tool is trusted.
///
/// # Errors
/// Why it may not be called, in words for a model.
pub async fn check(pins: &ToolPins, tool: &RegisteredTool) -> Result<(), ToolFailure> {
    if !tool.tool().is_announced() {
        return Ok(());
    }
    let registration = tool.registration();
    let (source, name) = (registration.source.to_string(), registration.name.as_str());
    let definition = || PinnedDefinition::from_registration(registration);
    let pinned = PinnedTool { namespace: PinnedTool::HANDLERS, tool: name, source: &source, name };
    match pins.is_trusted(pinned, tool.fingerprint(), definition).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(changed()),
        Err(error) => Err(out_of_reach(&error)),
    }
}

/// What a model is told of a tool whose definition is not the one that was approved.
#[must_use]
pub fn changed() -> ToolFailure {
    let reason = "the definition of this tool changed since it was approved; an operator must \
                  approve it before it is used again"
        .to_owned();
    ToolFailure::NotPermitted { reason }
}

/// What a model is told when nobody knows which definition was approved.
pub fn out_of_reach(error: &rockbot_store::StoreError) -> ToolFailure {
    tracing::warn!(%error, "the pins of tools are out of reach");
    let message = "the record of trusted tools is out of reach".to_owned();
    ToolFailure::Unavailable { message, executed: Executed::No }
}
