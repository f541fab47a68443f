//! Tools: their definitions, and the execution of calls within one process.
//!
//! - [`Tool`], [`ToolContext`], [`ToolResult`], [`ToolFailure`]: the interface of a tool;
//! - [`ToolRegistry`]: the tools of a process, by name;
//! - [`ToolProvider`]: a family of tools with one origin; [`AttachedProviders`]: several of them in a
//!   registry;
//! - [`schema`]: validation of arguments, within limits;
//! - [`ToolProfile`], [`ToolFilter`], [`ToolScope`]: the tools that an entry point, an agent and a
//!   single turn may use;
//! - [`Budget`]: the most that may be spent on one message of a user;
//! - [`ToolExecutor`]: runs a call through the [`layers`] and its [`hooks`];
//! - [`fingerprint`] and [`ToolPins`]: detection and approval of changed tool definitions;
//! - [`guides`]: usage guides for families of tools, written for models;
//! - [`images`]: images in results;
//! - [`chunk`] and [`outline`]: splitting and summarizing long texts;
//! - [`outputs`]: storage of large results, which models read in parts.

pub mod approval;
pub mod arguments;
mod attached_providers;
pub mod budget;
pub mod call_section;
mod canonical;
pub mod chunk;
pub mod context;
pub mod executor;
pub mod failure;
pub mod filter;
pub mod fingerprint;
mod fixed_tools;
pub mod guides;
pub mod hooks;
pub mod images;
pub mod layers;
pub mod limits;
pub mod names;
pub mod outline;
pub mod outputs;
pub mod pins;
pub mod profile;
pub mod provider;
pub mod quoted;
pub mod redaction;
pub mod registry;
pub mod result;
pub mod schema;
pub mod scope;
pub mod status;
#[cfg(test)]
mod testing;
pub mod tool;

pub use approval::{ApprovalPolicy, ApprovalRequest, ApprovalRule, ApprovalSection, Approver};
pub use attached_providers::{AttachedProviders, WARM_UP_TIMEOUT};
pub use budget::{Budget, BudgetError, BudgetGrant, BudgetLimits};
pub use call_section::CallSection;
pub use context::{ApprovalTime, ToolContext, ToolUpdate, UpdateSink, UserInput};
pub use executor::ToolExecutor;
pub use failure::ToolFailure;
pub use filter::ToolFilter;
pub use fixed_tools::FixedTools;
pub use guides::{Guide, GuideEntry, GuideSource, Guides, guide_tools};
pub use hooks::{AbandonedCall, CallEnd, EventSink, FinishedCall, ToolEvent, ToolHook, Verdict};
pub use layers::{CallAccount, CallPolicies, LayerOptions, ResultCache, ToolCall};
pub use limits::{CallPolicy, Tenant};
pub use outputs::{Outputs, OutputsSection, ToolOutput};
pub use period::Period;
pub use pins::{Pin, PinnedDefinition, PinnedTool, ToolPins};
pub use profile::{EntryPoint, ToolProfile};
pub use provider::{ToolProvider, WarmUpError};
pub use redaction::Redactor;
pub use registry::{RegisterError, ToolRegistry};
pub use result::ToolResult;
pub use rockbot_contracts::{
    ContentBlock, Executed, ToolHints, ToolRegistration, ToolSource, period,
};
pub use schema::{ArgumentSchema, SchemaError};
pub use scope::{RecordedScope, ScopeError, ToolScope};
pub use status::CallStatus;
pub use tool::{Tool, parse_arguments};
