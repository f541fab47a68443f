//! An agent with scripted models and small tools, in one process and over the in-memory bus.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod account;
mod approvals;
mod context;
mod front_door;
mod long_conversation;
mod mcp;
mod memory;
mod pins;
mod profiles;
mod services;
mod sessions;
mod stage;
mod steering;
mod team;
mod tool_calls;
mod turns;
