//! Agents: conversations with users, turns that call tools, and access to both over the bus.
//!
//! - [`AgentDefinition`]: name, prompt and permissions of an agent, read from a file;
//! - [`Agent`]: runs the conversations in one process; [`Agent::send`] is its in-process interface;
//! - [`serve`] and [`serve_shared`]: consume the inbox of an agent on the bus, in one process or in several
//!   that share its conversations; [`AgentClient`] sends messages to it;
//! - [`Conversations`]: the stored conversations, from which another process continues;
//! - [`AgentMemory`]: long-term and working memory, with the tools for it;
//! - [`ServiceSearch`]: search for agents and MCP servers that fit a task;
//! - [`Schedule`] and [`Scheduler`]: tasks that start turns at a time;
//! - [`AgentTools`]: the tools of a process, from the providers of [`AgentFamilies`];
//! - [`Delegation`]: sub-agents, which work beside a conversation and report back to it, and tasks of other
//!   agents; [`PeerService`] exchanges them over the bus;
//! - [`TurnEvent`] and [`TurnAnswer`]: progress and answer of a turn.
//!
//! A turn requests an answer of the model, runs the tools that it calls, and repeats until the model
//! answers with text. A message to a conversation whose turn is running steers that turn.

pub mod agent;
mod agent_processes;
mod agent_tools;
pub mod approvals;
pub mod behavior;
mod builtin_tool;
mod called_turn;
pub mod client;
pub mod context;
pub mod conversation;
pub mod conversation_service;
mod dedup;
pub mod definition;
pub mod delegation;
mod derived_id;
pub mod discovery;
pub mod event;
pub mod guides;
pub mod handoff;
mod history;
pub mod inbox;
mod inbox_watch;
mod instructions;
pub mod internal_tools;
mod large_results;
pub mod limits;
pub mod mcp;
pub mod memory;
mod message;
mod message_media;
mod metering;
pub mod origin;
pub mod parts;
mod peer_service;
mod progress_queue;
mod remote_agent;
mod reply_to;
pub mod schedule;
pub mod section;
pub mod services;
mod session;
mod session_data;
mod shared_progress;
mod steering;
pub mod strategy;
mod subagent_tool;
pub mod team;
mod telemetry;
pub mod tool_list;
mod tool_names;
mod truncation;
mod turn;
mod turn_result;
mod user_input;
pub mod wisps;

pub use agent::Agent;
pub use agent_tools::{AgentFamilies, AgentTools};
pub use approvals::Approvals;
pub use behavior::{ModelBehavior, ModelBehaviors};
pub use client::{
    AgentClient, ConversationRequestError, FollowUps, Replies, ReplyError, ScheduledResults,
    SendError,
};
pub use context::{
    ContextBudget, ContextPart, ContextRequest, ContextSource, CurrentDate, TimeZoneSource,
};
pub use conversation::{
    ConversationError, ConversationOptions, Conversations, EntryProblem, StoredMessage,
};
pub use conversation_service::{ConversationService, ConversationServiceBuilder};
pub use definition::{
    AgentDefinition, DefinitionErrors, DefinitionProblem, McpExposure, McpRules, ToolFilter,
};
pub use delegation::{Delegation, DelegationOptions};
pub use discovery::{A2aRules, AgentDirectory, KnownAgent, SkillRule};
pub use event::{ProgressSink, TurnAnswer, TurnEnd, TurnEvent};
pub use guides::{HandlerGuides, ServerGuides};
pub use handoff::Destinations;
pub use inbox::{AgentInbox, Sharing, serve, serve_shared};
pub use instructions::HandlerInstructions;
pub use limits::AgentLimits;
pub use mcp::McpParts;
pub use memory::{AgentMemory, ConversationLog, MemoryError, MemorySection};
pub use message::RecordedMessage;
pub use origin::{ParentTurn, TurnOrigin};
pub use parts::AgentParts;
pub use peer_service::PeerService;
pub use remote_agent::RemoteAgent;
pub use schedule::{Schedule, ScheduleSection, Scheduler};
pub use section::{AgentSection, ConversationsSection, McpSection, PinsSection};
pub use services::{AgentServices, McpServices, ServiceDirectory, ServiceSearch};
pub use session_data::SessionData;
pub use strategy::{ExecutionStrategy, Steering};
pub use team::Team;
pub use tool_list::{ToolList, ToolListLog};
