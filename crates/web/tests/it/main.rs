//! Tests of the web tools, most of them against a server on the loopback interface.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod articles;
mod github;
#[path = "../../src/html/hidden_ways.rs"]
mod hidden_ways;
mod hostile;
mod hostile_pages;
mod load;
mod pages;
mod ports;
mod robots;
mod server;
mod statuses;
