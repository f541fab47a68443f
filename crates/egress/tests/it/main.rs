//! The guarded client against servers on this machine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bodies;
mod connections;
mod dialing;
mod redirects;
mod server;
