//! For tests only: the bus conformance suite, buses to run it on, private brokers, and a proxy that
//! breaks connections.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test kit fails by panicking")]

pub mod bed;
pub mod broker;
pub mod cluster;
pub mod conformance;
pub mod proxy;

pub use bed::Bed;
pub use proxy::FaultProxy;
