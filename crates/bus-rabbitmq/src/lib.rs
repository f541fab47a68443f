//! The messaging port spoken in AMQP 0-9-1, to RabbitMQ.
//!
//! One supervisor task owns the connection and brings it back; publishers and consumers ask it for
//! fresh channels and declare what they need on them, so that nothing depends on what an earlier
//! connection left behind.
//!
//! - [`RabbitBus`]: the port;
//! - `supervisor`: the connection, and `tls` around it;
//! - `publish_channel`: channels to publish on, and the mapping of confirms and returns to results;
//! - `consumer`: consumers that survive their channel, and `presence`: the state of each;
//! - `refusal`: errors for requests that the broker refuses, with a remedy;
//! - `topology`: declaration of the exchanges and queues of the contracts;
//! - [`codec`]: envelopes as AMQP properties and back.

mod backoff;
mod bus;
mod channel_wait;
pub mod codec;
mod config;
mod confirm;
mod consumer;
mod fleet;
mod greeting;
mod presence;
mod publish_channel;
mod refusal;
mod settler;
mod supervisor;
mod tls;
mod topology;
mod traffic;

pub use bus::{ConnectError, RabbitBus};
pub use config::{InvalidUrl, RabbitConfig};
pub use fleet::{FleetConnection, join};
pub use tls::TlsFiles;
