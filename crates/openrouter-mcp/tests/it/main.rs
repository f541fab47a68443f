//! The program between a fake OpenRouter and real MCP clients.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod conformance;
mod failures;
mod program;
mod scripted;
mod shutdown;
mod startup;
mod tools;
