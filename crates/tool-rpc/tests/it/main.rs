//! Tests of both ends of a tool call, on the in-memory bus.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bad_input;
mod catalog;
mod duplicate_requests;
mod executed;
mod fleet;
mod identity;
mod isolation;
mod journal;
mod journal_fixture;
mod layers;
mod load;
mod lossy_bus;
mod mcp_fixture;
mod mcp_index;
mod mcp_input;
mod mcp_manage;
mod quarantine;
mod round_trip;
mod silent_store;
mod tool_resolver;
