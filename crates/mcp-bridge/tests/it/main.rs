//! Integration tests of the bridge, with well-behaved and misbehaving servers.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails its test")]

mod client_files;
mod conformance;
mod content;
mod definitions;
mod elicitation;
mod faults;
mod fixture;
mod gateways;
mod lifecycle;
mod oauth;
mod openapi;
mod ownership;
mod publication;
mod rejections;
mod remote;
mod startup;
mod states;
mod subscriptions;
mod tasks;
mod third_party;
