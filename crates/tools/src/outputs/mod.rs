//! Results that are too large for the bus or for a model: kept whole in the store, and read in
//! parts.
//!
//! - [`OutputsSection`]: what an operator says about it;
//! - [`Outputs`]: keeps a text for one conversation of one agent, and finds it again, from any
//!   process with the same store;
//! - [`tool_output`](ToolOutput): how a model reads what was kept.

mod error;
mod grep;
mod handle;
mod keep;
mod pointer;
mod read;
mod record;
mod section;
mod tool;

use crate::guides::Guide;

pub use self::{
    error::KeepError,
    keep::{Kept, Outputs},
    section::OutputsSection,
    tool::ToolOutput,
};

/// The name of the tool that reads stored outputs.
pub const TOOL_OUTPUT: &str = "tool_output";

/// How large results are read.
pub const GUIDE: Guide = Guide {
    name: "large-outputs-guide",
    summary: "Results too large to be shown whole: handles, chunks, and reading the parts you need",
    markdown: include_str!("../../guides/large-outputs-guide.md"),
};
