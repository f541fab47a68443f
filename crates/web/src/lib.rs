//! Tools for the web.

pub mod api;
pub mod github;
mod one_line;
pub mod search;
mod secret;
