//! Conformance, faults and permissions at a real broker. `cargo xtask test` provides it; tests whose
//! faults would affect other tests start a private one.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod alarm;
mod authority;
mod broker;
mod channel;
mod cluster;
mod codec;
mod connection;
mod credentials;
mod exchanges;
mod identity;
mod management;
mod mcp;
mod messages;
mod newer_brokers;
mod queues;
mod restart;
mod test_process;
mod tls;
mod unreachable;

use std::sync::Arc;

use rockbot_bus::Bus;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_testkit::{BusFixture, fixture as kit};

/// Connects a process to the fleet in `namespace`.
async fn connect(namespace: &str, name: &str) -> Arc<dyn Bus> {
    let config = RabbitConfig::new(kit::test_broker_url(), name).with_namespace(namespace);
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(kit::TEST_TIMEOUT).await.expect("connected");
    Arc::new(bus)
}

/// Connects two processes to a new fleet at the shared test broker.
async fn fixture() -> BusFixture {
    let namespace = kit::fresh_namespace();
    BusFixture {
        local: connect(&namespace, "local").await,
        remote: connect(&namespace, "remote").await,
    }
}

rockbot_testkit::bus_conformance_tests!(crate::fixture);
