//! Every store keeps the promises that all make. `cargo xtask test` provides PostgreSQL.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod memory;
mod postgres;
mod sqlite;
mod sweeper;
