//! Built-in tools, by family.

pub mod files;
