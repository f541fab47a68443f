//! Working memory: temporary entries of an agent.
//!
//! - [`WorkingMemory`]: saves, reads and searches entries; tools store large results in it;
//! - [`MemoryOwner`]: the agent and conversation of an entry;
//! - whiteboards: the entries that a conversation shares with its sub-agents;
//! - [`working_memory_tools`]: the five tools for models, with their [`GUIDE`].

mod address;
mod error;
mod inventory;
mod label;
mod memory;
mod search;
mod tools;
mod whiteboard;

pub use self::{
    address::MemoryOwner,
    error::WorkingMemoryError,
    memory::{SaveOptions, WorkingMemory, WorkingMemoryLimits},
    search::{MemoryEntry, MemoryHit, MemorySearch},
    tools::{GUIDE, working_memory_tools},
};
