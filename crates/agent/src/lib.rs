//! An agent: conversations with people, turns that call tools, and the door to both on the bus.
//!
//! - [`AgentDefinition`]: who the agent is and what it may do, from a file;
//! - [`Agent`]: runs its conversations in one process; [`Agent::message`] talks to it directly;
//! - [`serve`]: puts an agent behind its queue on the bus, and [`AgentClient`] is the other end;
//! - [`AgentMemory`]: what it remembers, with the tools for it;
//! - [`ServiceSearch`]: which agents and MCP servers can help it;
//! - [`TurnEvent`] and [`TurnAnswer`]: what a person sees of a turn.
//!
//! One turn: ask the model, run the tools it calls, give it the results, and so on until it
//! answers in words. A message to a conversation whose turn is running steers that turn.

mod account;
pub mod agent;
pub mod approvals;
mod backlog;
pub mod behaviour;
pub mod client;
pub mod context;
pub mod definition;
pub mod event;
pub mod front_door;
mod history;
mod large;
mod ledger;
pub mod limits;
pub mod mcp;
pub mod memory;
mod message;
pub mod model_list;
pub mod origin;
mod own_tool;
pub mod parts;
pub mod section;
pub mod services;
mod session;
mod steering;
pub mod strategy;
pub mod team;
mod telemetry;
mod turn;

pub use agent::Agent;
pub use approvals::Approvals;
pub use behaviour::{ModelBehaviour, ModelBehaviours};
pub use client::{AgentClient, Replies, ReplyError, SayError};
pub use context::{ContextBudget, ContextPart, ContextSource, Moment, TodaysDate, Zones};
pub use definition::{
    AgentDefinition, DefinitionErrors, DefinitionProblem, McpExposure, McpRules, ToolFilter,
};
pub use event::{ProgressSink, TurnAnswer, TurnEvent};
pub use front_door::{FrontDoor, serve};
pub use limits::AgentLimits;
pub use mcp::McpParts;
pub use memory::{AgentMemory, ConversationLog, MemoryError, MemorySection};
pub use model_list::{ModelList, ModelListLog};
pub use origin::{Asking, TurnOrigin};
pub use parts::AgentParts;
pub use section::{AgentSection, McpSection, PinsSection};
pub use services::{KnownServices, McpServices, ServiceSearch};
pub use strategy::{ExecutionStrategy, Steering};
pub use team::Team;
