//! Working memory of agents, and full-text ranking.
//!
//! - [`WorkingMemory`]: temporary entries of an agent, with the tools for them;
//! - [`Ranker`]: ranks texts by how well they match a query;
//! - [`excerpt()`]: the part of a text that matches a query.

pub mod excerpt;
pub mod ranker;
pub mod working_memory;

pub use excerpt::excerpt;
pub use ranker::Ranker;
pub use working_memory::{MemoryOwner, SaveOptions, WorkingMemory, WorkingMemoryError};
