//! The program, between a scripted OpenRouter and real MCP clients.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod conformance;
mod doors;
mod failures;
mod program;
mod scripted;
mod start;
mod stopping;
mod tools;
