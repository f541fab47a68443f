//! Tools for the web.

pub mod api;
pub mod github;
mod one_line;
#[cfg(feature = "pdf")]
pub mod pdf;
pub mod search;
mod secret;
