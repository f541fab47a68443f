//! The provider of REST tools, and the file that it follows.

mod build;
mod document;
mod entries;
mod limits;
mod rest;
mod status;

pub use self::{
    rest::{RestOptions, RestProvider, Variables},
    status::{EntryStatus, RestStatus, SkippedTool},
};
