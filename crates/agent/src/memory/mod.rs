//! What an agent remembers, in a store that its processes share.
//!
//! - [`AgentMemory`]: all of it, with its tools, its guides, and what it tells a model by itself;
//! - [`MemorySection`]: where it is kept, and for how long;
//! - [`ConversationLog`]: what was said, for later search.
//!
//! Everything belongs to one agent: the one that a call or a turn is of.

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

pub use self::{
    agent_memory::{AgentMemory, MemoryError},
    log::ConversationLog,
    section::MemorySection,
};
