//! Sessions with MCP servers that behave, and with servers that do not.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod oauth;
mod remote;
