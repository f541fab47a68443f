//! Results that are too large for the bus or for a model: stored completely, and read in parts.
//!
//! [`Outputs`] stores texts for one conversation of one agent; any process on the same store can read
//! them. A model reads them with the tool [`ToolOutput`].

mod error;
mod grep;
mod handle;
mod pointer;
mod record;
mod section;
mod storage;
mod stored_output;
mod tool;

use crate::guides::Guide;

pub use self::{
    error::OutputError,
    section::OutputsSection,
    storage::{Outputs, StoredHandle},
    tool::ToolOutput,
};

/// Name of the tool that reads stored outputs.
pub const TOOL_OUTPUT: &str = "tool_output";

/// Guide on reading large results.
pub const GUIDE: Guide = Guide {
    name: "large-outputs-guide",
    summary: "Results too large to be shown whole: handles, chunks, and reading the parts you need",
    markdown: include_str!("../../guides/large-outputs-guide.md"),
};
