//! What happens to every call on its way to the tool, one small piece each.
//!
//! A layer is a [`CallService`] around another; [`stack`] assembles them. The futures nest without
//! boxes, so a layer costs only its own work.

pub mod account;
pub mod approve;
pub mod cache;
mod deadline;
mod execute;
mod kept_results;
mod limited;
mod permit;
pub mod pin;
pub mod policy;
pub mod redact;
mod resolve;
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
    account::CallAccount, deadline::Deadline, execute::Execute, kept_results::ResultCache,
    permit::Permit, policy::CallPolicies, resolve::Resolve, size_cap::SizeCap, stack::LayerOptions,
    trace::Traced, validate::Validate,
};

/// A call as it comes from a model or from the bus.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// What the system says about it.
    pub context: ToolContext,
    /// The arguments, as text.
    pub arguments: Arc<str>,
}

/// A call whose tool was found.
#[derive(Debug)]
pub struct ResolvedCall {
    /// What the system says about it.
    pub context: ToolContext,
    /// The arguments: as text until they are validated.
    pub arguments: RawArguments,
    /// The tool.
    pub tool: Arc<RegisteredTool>,
    /// What holds for its calls.
    pub policy: CallPolicy,
}

/// A call on its way. In a box, since each layer holds it while those inside it run, and futures are
/// as large as what they hold.
pub type Call = Box<ResolvedCall>;

impl ResolvedCall {
    /// The tool's name in the registry, which may have been called by another.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tool.registration().name
    }

    /// Whether running the tool twice does no harm.
    #[must_use]
    pub fn may_run_again(&self) -> bool {
        self.tool.registration().hints.may_run_again()
    }
}

/// Arguments before and after they were read.
#[derive(Debug)]
pub enum RawArguments {
    /// As they came.
    Text(Arc<str>),
    /// Read and valid.
    Valid(Value),
}

/// One piece of the way of a call.
pub trait CallService<C>: Send + Sync {
    /// Takes the call to its end.
    fn call(&self, call: C) -> impl Future<Output = Result<ToolResult, ToolFailure>> + Send;
}
