//! Test support: conformance suites for buses and stores, fixtures to run them on, private brokers and
//! databases, real MCP servers, and a proxy that injects connection faults.
//!
//! A development dependency only. The vocabulary is in the crate's `README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails by panicking")]

pub mod broker;
pub mod bus_conformance;
pub mod cluster;
pub mod collector;
pub mod docker;
pub mod fixture;
pub mod intercepted_bus;
pub mod mcp_peers;
pub mod postgres;
pub mod proxy;
pub mod store_conformance;
pub mod store_fixture;
pub mod tool_names;
pub mod vhost;

pub use collector::{Collector, Span};
pub use fixture::BusFixture;
pub use intercepted_bus::InterceptedBus;
pub use mcp_peers::{HttpPeer, McpPeer, RunningHttpPeer};
pub use proxy::FaultProxy;
pub use store_fixture::StoreFixture;
pub use vhost::FleetVhost;
