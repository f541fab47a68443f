//! The tool trade: what a tool is, how a call runs, and both ends of a call on the bus.
//!
//! - [`Tool`], [`ToolContext`], [`ToolResult`], [`ToolFailure`]: what a tool is;
//! - [`ToolRegistry`]: the tools of a process, by name;
//! - [`ToolProfile`], [`ToolFilter`], [`ToolScope`]: which of them a kind of work, an agent, and
//!   one turn may use; [`ModelList`]: what a model is told of them;
//! - [`ToolExecutor`]: runs a call through the [`layers`], with [`hooks`] around it;
//! - [`ExecutionStrategy`]: how several calls of one answer are run;
//! - [`ToolInvokeHandler`] and [`RemoteTool`]: the two ends of a call on the bus, side by side
//!   because they are one protocol;
//! - [`catalog`]: how agents learn what handlers run;
//! - [`mcp`]: MCP servers, as agents see them;
//! - [`guides`]: how families of tools are used, for models;
//! - [`chunk`] and [`outline`]: long texts in pieces, and in few words;
//! - [`outputs`]: results that are too large, kept whole and read in parts;
//! - [`WorkingMemory`]: what an agent puts aside while it works;
//! - [`Ranker`]: which texts fit a query best.

pub mod approval;
pub mod arguments;
pub mod call_section;
mod canonical;
pub mod catalog;
pub mod chunk;
pub mod excerpt;
pub mod executor;
pub mod failure;
pub mod filter;
pub mod guides;
pub mod hooks;
pub mod invoke;
pub mod layers;
pub mod mcp;
pub mod model_list;
pub mod names;
pub mod outline;
pub mod outputs;
pub mod period;
pub mod pins;
pub mod profile;
pub mod ranker;
pub mod redaction;
pub mod registry;
pub mod remote;
pub mod remote_call;
pub mod reply_probe;
pub mod result;
pub mod scope;
pub mod section;
pub mod status;
pub mod strategy;
#[cfg(test)]
mod testing;
pub mod tool;
pub mod working_memory;

pub use approval::{ApprovalPolicy, ApprovalQuestion, ApprovalRule, ApprovalSection, Approver};
pub use call_section::CallSection;
pub use catalog::{CatalogAnnouncer, CatalogDirectory};
pub use excerpt::excerpt;
pub use executor::ToolExecutor;
pub use failure::ToolFailure;
pub use filter::ToolFilter;
pub use guides::{Guide, guide_tools};
pub use hooks::{CallEnd, EventSink, ToolEvent, ToolHook, Verdict};
pub use invoke::{
    Addressing, AdmissionLimits, CallJournal, Conversation, HandlerStats, InvokeOptions,
    JournalOptions, QueueLimits, ToolInvokeHandler,
};
pub use layers::{CallAccount, CallPolicies, CallPolicy, LayerOptions, ResultCache, ToolCall};
pub use model_list::{ModelList, ModelListLog};
pub use outputs::{Outputs, OutputsSection, ToolOutput};
pub use period::Period;
pub use pins::{Pin, PinnedDefinition, PinnedTool, ToolPins};
pub use profile::{EntryPoint, ToolProfile};
pub use ranker::Ranker;
pub use redaction::Redactor;
pub use registry::{RegisterError, ToolRegistry};
pub use remote::RemoteTool;
pub use remote_call::RemoteCall;
pub use reply_probe::{Replies, ReplyProbe};
pub use result::ToolResult;
pub use rockbot_contracts::{ContentBlock, Executed, ToolHints, ToolRegistration, ToolSource};
pub use scope::{Refused, ToolScope};
pub use section::{HandlerSection, QueueSection};
pub use status::CallStatus;
pub use strategy::{ExecutionStrategy, Steering};
pub use tool::{Tool, ToolContext, ToolUpdate, UpdateSink};
pub use working_memory::{MemoryOwner, Saving, WorkingMemory, WorkingMemoryError};
