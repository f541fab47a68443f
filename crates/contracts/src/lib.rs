//! The wire contract: envelopes, headers, names, payloads, error codes and ids.
//!
//! This is the lowest layer. It depends on no runtime and does no I/O, so that callers, handlers and
//! monitors share it.
//!
//! - [`envelope`]: the message around a payload, and the checks before it is parsed.
//! - [`headers`]: names of headers and their prefix.
//! - [`topology`]: exchanges, queues, routing keys and bindings; [`shape`]: the arguments that queues are
//!   declared with.
//! - [`identity`]: broker users, and the callers that each may send requests for; [`permissions`]: their
//!   rights; [`definitions`]: both in the format that RabbitMQ imports.
//! - [`tool`], [`catalog`], [`mcp`], [`script`], [`user`], [`conversation`], [`approval`],
//!   [`input`], [`forward`], [`agent_task`], [`agent_card`]: payloads.
//! - [`outside_text`]: text from others, made harmless for models and terminals.
//! - [`period`]: the form of durations in configuration.

pub mod agent_card;
mod agent_keys;
pub mod agent_task;
pub mod approval;
pub mod catalog;
pub mod conversation;
pub mod definitions;
pub mod envelope;
pub mod forward;
pub mod headers;
pub mod identity;
pub mod ids;
pub mod input;
pub mod interim;
pub mod json;
pub mod labels;
pub mod mcp;
pub mod message;
pub mod outside_text;
pub mod period;
pub mod permissions;
mod pool;
mod pool_name;
mod reply_address;
pub mod schedule;
pub mod script;
mod segment;
pub mod shape;
pub mod spending;
pub mod task;
mod task_caller;
pub mod tool;
pub mod topology;
pub mod trace;
pub mod user;

pub use agent_card::{AgentCard, AgentSkill, DiscoveryRefresh};
pub use agent_task::{
    AgentTaskCancelRequest, AgentTaskError, AgentTaskErrorCode, AgentTaskRequest, AgentTaskResult,
    AgentTaskState, AgentTaskStatusUpdate, TaskArtifact, TaskBudget, TaskMessage, TaskPart,
};
pub use approval::{ApprovalAnswer, ApprovalDecision, ApprovalOutcome};
pub use catalog::{
    HandlerLoad, ProviderInstructions, ScriptIsolation, ToolCatalog, ToolCatalogRefresh, ToolGuide,
    ToolHints, ToolRegistration, ToolSource,
};
pub use conversation::{ConversationRequest, ConversationResponse, UserFeedback};
pub use envelope::{ContentTrust, DeliveryMode, Envelope, TraceContext};
pub use forward::{ForwardOutcome, ForwardReceipt, ForwardedMessage};
pub use ids::{
    AgentName, ApprovalId, InputId, InstanceId, MessageId, SessionId, TaskId, ToolCallId,
};
pub use input::{InputAction, InputAnswer, InputBody, InputOutcome, InputRequest, InputResponse};
pub use message::{DecodeError, Message};
pub use period::Period;
pub use pool::{HandlerPool, may_reply_to};
pub use pool_name::{InvalidPoolName, PoolName};
pub use schedule::{ScheduleRequest, ScheduleResponse, ScheduledEnded};
pub use spending::{Spending, TurnUsage};
pub use task::{TaskState, TaskSummary};
pub use task_caller::{TaskCaller, TaskCallerError};
pub use tool::{
    CallStages, ContentBlock, Executed, ToolCancel, ToolError, ToolErrorCode, ToolInvokeRequest,
    ToolInvokeResponse, ToolProgress,
};
pub use topology::{BindingPattern, QueueKind, QueueName, QueueSpec, RoutingKey};
pub use user::{AgentReply, ReplyBody, UserMessage};
