//! Bridges and servers of every kind: those that behave, and those that do not.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod bed;
mod conformance;
mod faults;
mod lifecycle;
mod oauth;
mod owners;
mod peers;
mod remote;
mod two_ways;
