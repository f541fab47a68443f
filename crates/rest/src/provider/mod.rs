//! The provider of REST tools, and the file that it follows.

mod build;
mod builds;
mod entries;
mod limits;
mod options;
mod rest;
mod status;

pub use self::{
    options::{RestOptions, Variables},
    rest::RestProvider,
    status::{EntryStatus, RestStatus},
};
