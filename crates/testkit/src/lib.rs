//! Test support: fixtures and conformance suites for buses and stores, private brokers and databases, real
//! MCP servers, mocks of HTTP APIs, and fault injection.
//!
//! A development dependency only. The vocabulary is in the crate's `README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails by panicking")]

pub mod broker;
pub mod bus_conformance;
pub mod docker;
pub mod documented_commands;
pub mod documented_output;
pub mod fixture;
pub mod inspection_proxy;
pub mod intercepted_bus;
pub mod intercepted_store;
pub mod management;
pub mod mcp_comparison;
pub mod mcp_conformance;
#[cfg(feature = "mcp-echo")]
mod mcp_echo;
pub mod mcp_servers;
pub mod measured_calls;
pub mod openapi_mock;
pub mod otlp_collector;
pub mod postgres;
pub mod proxy;
pub mod rabbitmq_cluster;
pub mod store_conformance;
pub mod store_fixture;
pub mod tool_name_variants;
pub mod turn_benchmark;
pub mod vhost;

pub use fixture::BusFixture;
pub use inspection_proxy::InspectionProxy;
pub use intercepted_bus::InterceptedBus;
pub use intercepted_store::{InterceptedStore, StoreInterceptor};
#[cfg(feature = "mcp-echo")]
pub use mcp_echo::McpEcho;
pub use mcp_servers::{HttpPeer, McpPeer, RunningHttpPeer};
pub use openapi_mock::OpenApiMock;
pub use otlp_collector::{Collector, Span};
pub use proxy::FaultProxy;
pub use store_fixture::StoreFixture;
pub use vhost::FleetVhost;
