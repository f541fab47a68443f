//! Tests of the in-memory store and the sweeper.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod memory;
mod sweeper;
