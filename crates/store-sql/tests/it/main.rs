//! Tests of both SQL stores, including the conformance suite. `cargo xtask test` provides PostgreSQL.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod failed_appends;
mod postgres;
mod sqlite;
