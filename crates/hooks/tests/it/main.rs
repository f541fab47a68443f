//! Hooks around real calls of an executor.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod audit;
mod command;
mod harness;
