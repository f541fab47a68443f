//! For tests only: the bus conformance suite, buses to run it on, and a private broker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails by panicking")]

pub mod bed;
pub mod broker;
pub mod conformance;

pub use bed::Bed;
