//! Tools for the web.

#[cfg(feature = "pdf")]
pub mod pdf;
