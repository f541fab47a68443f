//! Working memory: what an agent puts aside while it works, gone after a while.
//!
//! - [`WorkingMemory`]: the port to it, for tools that put large things there;
//! - [`MemoryOwner`]: whose it is;
//! - [`working_memory_tools`]: the five tools over it, and their [`GUIDE`].

mod address;
mod error;
mod found;
mod inventory;
mod label;
mod memory;
mod tools;

pub use self::{
    address::MemoryOwner,
    error::WorkingMemoryError,
    found::{MemoryEntry, MemoryHit, MemorySearch},
    memory::{Saving, WorkingMemory, WorkingMemoryLimits},
    tools::{GUIDE, working_memory_tools},
};
