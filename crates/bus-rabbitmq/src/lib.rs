//! RabbitMQ adapter of the messaging port, over AMQP 0-9-1.
//!
//! One supervisor task owns the connection and reconnects. Publishers and consumers request new channels
//! from it and declare what they need on them, so that nothing depends on the state of an earlier
//! connection.
//!
//! - [`RabbitBus`]: the implementation of the port.
//! - `supervisor`: the connection; `tls`: its encryption; `io_runtime`: the client library's runtime.
//! - `publish_channel`: channels for publishing, and the mapping of confirms and returns to results.
//! - `consumer`: consumers that survive their channel; `consumer_status`: the state of each.
//! - `clock_skew`: deadlines of senders whose clocks differ.
//! - `dead_letter_budget`: a limit on the dead letters that senders cause.
//! - `refusal`: errors for operations that the broker refuses, with a remedy.
//! - `topology`: declaration of exchanges and queues.
//! - [`codec`]: conversion between envelopes and AMQP properties.

mod backoff;
mod bus;
mod channel_wait;
mod clock_skew;
pub mod codec;
mod config;
mod confirm;
mod consumer;
mod consumer_status;
mod dead_letter_budget;
mod greeting;
mod io_runtime;
mod publish_channel;
mod refusal;
mod section;
mod settler;
mod supervisor;
mod tls;
mod topology;
mod traffic;

pub use bus::{ConnectError, RabbitBus};
pub use config::{InvalidUrl, RabbitConfig};
pub use section::{BusSection, TlsSection};
pub use tls::TlsFiles;
