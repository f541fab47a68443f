//! For tests only: the conformance suites of buses and stores, something to run them on, private
//! brokers and databases, real MCP servers, and a proxy that breaks connections.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails by panicking")]

pub mod altered_bus;
pub mod bed;
pub mod broker;
pub mod cluster;
pub mod collector;
pub mod conformance;
pub mod docker;
pub mod inventions;
pub mod mcp_peers;
pub mod postgres;
pub mod proxy;
pub mod store_bed;
pub mod store_conformance;

pub use altered_bus::AlteredBus;
pub use bed::Bed;
pub use collector::{Collector, Span};
pub use mcp_peers::{HttpPeer, McpPeer, RunningHttpPeer};
pub use proxy::FaultProxy;
pub use store_bed::StoreBed;
