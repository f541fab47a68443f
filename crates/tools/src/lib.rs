//! What a tool is, and how a call runs in one process.
//!
//! - [`Tool`], [`ToolContext`], [`ToolResult`], [`ToolFailure`]: what a tool is;
//! - [`ToolRegistry`]: the tools of a process, by name;
//! - [`ToolProfile`], [`ToolFilter`], [`ToolScope`]: which of them a kind of work, an agent, and
//!   one turn may use;
//! - [`ToolExecutor`]: runs a call through the [`layers`], with [`hooks`] around it;
//! - [`fingerprint`] and [`ToolPins`]: changes of a tool's definition, and which are trusted;
//! - [`guides`]: how families of tools are used, for models;
//! - [`chunk`] and [`outline`]: long texts in pieces, and in few words;
//! - [`outputs`]: results that are too large, kept whole and read in parts.

pub mod approval;
pub mod arguments;
pub mod call_section;
mod canonical;
pub mod chunk;
pub mod context;
pub mod executor;
pub mod failure;
pub mod filter;
pub mod fingerprint;
pub mod guides;
pub mod hooks;
pub mod layers;
pub mod limits;
pub mod names;
pub mod outline;
pub mod outputs;
pub mod pins;
pub mod profile;
pub mod redaction;
pub mod registry;
pub mod result;
pub mod scope;
pub mod status;
#[cfg(test)]
mod testing;
pub mod tool;

pub use approval::{ApprovalPolicy, ApprovalQuestion, ApprovalRule, ApprovalSection, Approver};
pub use call_section::CallSection;
pub use context::{ToolContext, ToolUpdate, UpdateSink};
pub use executor::ToolExecutor;
pub use failure::ToolFailure;
pub use filter::ToolFilter;
pub use guides::{Guide, guide_tools};
pub use hooks::{CallEnd, EventSink, FinishedCall, ToolEvent, ToolHook, Verdict};
pub use layers::{CallAccount, CallPolicies, LayerOptions, ResultCache, ToolCall};
pub use limits::{CallPolicy, Tenant};
pub use outputs::{Outputs, OutputsSection, ToolOutput};
pub use period::Period;
pub use pins::{Pin, PinnedDefinition, PinnedTool, ToolPins};
pub use profile::{EntryPoint, ToolProfile};
pub use redaction::Redactor;
pub use registry::{RegisterError, ToolRegistry};
pub use result::ToolResult;
pub use rockbot_contracts::{
    ContentBlock, Executed, ToolHints, ToolRegistration, ToolSource, period,
};
pub use scope::{Refused, ToolScope};
pub use status::CallStatus;
pub use tool::Tool;
