//! Bridges and servers of every kind: those that behave, and those that do not.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod bed;
mod faults;
mod lifecycle;
mod owners;
mod peers;
mod oauth;
mod remote;
