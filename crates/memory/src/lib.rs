//! Working memory, and the ranking of texts for search.
//!
//! - [`WorkingMemory`]: entries that an agent saves while it works, with the tools for them;
//! - [`Ranker`]: ranks texts by how well they match a query;
//! - [`excerpt()`]: the part of a text that matches a query.

pub mod excerpt;
pub mod ranker;
pub mod working_memory;

pub use excerpt::excerpt;
pub use ranker::Ranker;
pub use working_memory::{MemoryOwner, Saving, WorkingMemory, WorkingMemoryError};
