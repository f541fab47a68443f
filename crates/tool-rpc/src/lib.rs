//! Both ends of a tool call on the bus, in one crate because they implement one protocol.
//!
//! - [`RemoteTool`] and [`RemoteCall`]: the caller's end;
//! - [`ToolInvokeHandler`]: the handler's end, with journal, admission control and quarantine;
//! - [`HandlerSection`]: the configuration of a process that runs tools, and [`Family`], what it runs;
//! - [`catalog`]: announcements of tools, and the directory that agents build from them;
//! - [`mcp`]: MCP servers over the bus;
//! - [`ReplyProbe`]: checks that replies arrive.

pub mod catalog;
mod family;
mod input_requester;
pub mod invoke;
pub mod mcp;
mod queue_section;
pub mod remote;
pub mod remote_call;
pub mod reply_probe;
pub mod section;
mod unknown_agent;

pub use catalog::{AnnouncedHandler, CatalogAnnouncer, CatalogDirectory, HandlerView};
pub use family::Family;
pub use input_requester::InputRequester;
pub use invoke::{
    AdmissionLimits, CallJournal, CallProtocol, HandlerStats, InvokeOptions, JournalOptions,
    QueueLimits, ToolInvokeHandler, ToolResolver,
};
pub use queue_section::QueueSection;
pub use remote::RemoteTool;
pub use remote_call::RemoteCall;
pub use reply_probe::{ReplyProbe, ReplyState};
pub use section::HandlerSection;
