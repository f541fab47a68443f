//! Layers that every call passes on its way to the tool.
//!
//! A layer is a [`CallService`] around another; [`stack`] composes them. The futures nest without
//! boxing, so a layer costs only its own work.

pub mod account;
pub mod approve;
pub mod cache;
mod deadline;
mod execute;
mod limits;
pub mod pin;
pub mod policy;
pub mod redact;
mod resolve;
mod result_cache;
mod scope_check;
mod size_cap;
pub mod stack;
mod trace;
mod validate;

use std::sync::Arc;

use serde_json::Value;

use crate::{
    context::ToolContext, failure::ToolFailure, limits::CallPolicy, registry::RegisteredTool,
    result::ToolResult,
};

pub use self::{
    account::CallAccount, deadline::Deadline, execute::Execute, policy::CallPolicies,
    resolve::Resolve, result_cache::ResultCache, scope_check::ScopeCheck, size_cap::SizeCap,
    stack::LayerOptions, trace::Traced, validate::Validate,
};

/// A call as received from a model or from the bus.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// Facts about the call.
    pub context: ToolContext,
    /// Arguments, as text.
    pub arguments: Arc<str>,
}

/// A call with its tool.
#[derive(Debug)]
pub struct ResolvedCall {
    /// Facts about the call.
    pub context: ToolContext,
    /// Arguments: text until they are validated.
    pub arguments: RawArguments,
    /// Tool.
    pub tool: Arc<RegisteredTool>,
    /// Policy of the tool's calls.
    pub policy: CallPolicy,
}

/// A call within the layers. Boxed, because each layer's future holds it while the inner layers run.
pub type Call = Box<ResolvedCall>;

impl ResolvedCall {
    /// Returns the registered name of the tool; the call may have used another.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tool.registration().name
    }

    /// Returns `true` if running the tool twice is harmless.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        self.tool.registration().hints.may_retry()
    }
}

/// Arguments before and after validation.
#[derive(Debug)]
pub enum RawArguments {
    /// Text as received.
    Text(Arc<str>),
    /// Validated JSON.
    Valid(Value),
}

/// A layer, or the tool itself.
pub trait CallService<C>: Send + Sync {
    /// Runs the call.
    fn call(&self, call: C) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send;
}
