//! Every word that crosses the bus.
//!
//! This crate is the ground floor: envelopes, headers, names of exchanges, queues and routing
//! keys, payloads, error codes and id newtypes. It knows no runtime and does no I/O, so both ends
//! of every conversation can agree on it, and a monitor can read it.
//!
//! Where to find what:
//! - [`envelope`]: the message around a payload, and the limits checked before it is parsed;
//! - [`headers`]: the names of headers on the wire, and the one place that prefixes them;
//! - [`topology`]: exchanges, queues, routing keys and bindings, and [`shape`], how the broker keeps
//!   a queue;
//! - [`identity`]: the broker's users, and whom each may speak for; [`permissions`], what each may
//!   do; [`definitions`], both as RabbitMQ imports them;
//! - [`tool`], [`catalog`], [`mcp`], [`script`], [`user`]: the payloads, one file per conversation.

pub mod approval;
pub mod catalog;
pub mod definitions;
pub mod envelope;
pub mod headers;
pub mod identity;
pub mod ids;
pub mod json;
pub mod labels;
pub mod mcp;
pub mod message;
pub mod period;
pub mod permissions;
mod reply_address;
pub mod script;
mod segment;
pub mod shape;
pub mod spending;
pub mod tool;
pub mod topology;
pub mod trace;
pub mod user;

pub use approval::{ApprovalAnswer, ApprovalDecision};
pub use catalog::{
    HandlerLoad, ToolCatalog, ToolCatalogRefresh, ToolHints, ToolRegistration, ToolSource,
};
pub use envelope::{ContentTrust, DeliveryMode, Envelope, TraceContext};
pub use ids::{AgentName, ApprovalId, InstanceId, MessageId, SessionId, ToolCallId};
pub use message::{DecodeError, Message};
pub use period::Period;
pub use spending::{Spending, TurnUsage};
pub use tool::{
    ContentBlock, Executed, ToolCancel, ToolError, ToolErrorCode, ToolInvokeRequest,
    ToolInvokeResponse, ToolProgress,
};
pub use topology::{BindingPattern, QueueKind, QueueName, QueueSpec, RoutingKey};
pub use user::{AgentReply, ReplyBody, UserMessage};
