//! Memory of an agent, in a store that its processes share.
//!
//! - [`AgentMemory`]: the whole memory, with its tools, guides and context sources;
//! - [`MemorySection`]: store and lifetimes;
//! - [`ConversationLog`]: searchable history of conversations.
//!
//! Every entry belongs to one agent: the agent of the call or turn.

mod agent_memory;
mod collection;
mod facts;
mod inventory;
mod log;
mod recall;
mod rules;
mod section;
mod skills;
mod timezone;

pub(crate) use self::timezone::TimeZones;
pub use self::{
    agent_memory::{AgentMemory, MemoryError},
    log::ConversationLog,
    section::MemorySection,
};
