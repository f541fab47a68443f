//! The messaging port spoken in AMQP 0-9-1, to RabbitMQ.
//!
//! One supervisor task owns the connection and brings it back; publishers and consumers ask it for
//! fresh channels and declare what they need on them, so that nothing depends on what an earlier
//! connection left behind.
//!
//! - [`RabbitBus`]: the port;
//! - `supervisor`: the connection, and `tls` around it;
//! - `lane`: channels to publish on, and how confirms and returns become results;
//! - `source`: consumers that survive their channel, and `presence`: whether they consume now;
//! - `refusal`: what the broker refuses, in words that say what to do;
//! - `topology`: how a queue of the contracts is declared;
//! - [`codec`]: envelopes as AMQP properties and back.

mod backoff;
mod bus;
pub mod codec;
mod config;
mod fleet;
mod greeting;
mod lane;
mod presence;
mod refusal;
mod settler;
mod source;
mod supervisor;
mod tls;
mod topology;
mod traffic;
mod watched;
mod word;

pub use bus::{RabbitBus, ReachError};
pub use config::{InvalidUrl, RabbitConfig};
pub use fleet::{Joined, join};
pub use tls::TlsFiles;
