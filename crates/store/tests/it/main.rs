//! The store in memory passes the conformance suite.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod memory;
mod sweeper;
