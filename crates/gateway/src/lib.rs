//! The fleet over HTTP: faces for people and programs, behind one guard.
//!
//! - [`Gateway`]: the faces, composed into one router; [`GatewayServer`] serves it;
//! - [`Face`], [`Route`], [`Access`]: the routes of one protocol, each with the access that it requires;
//! - [`Identity`]: the sender of a request, and what it may use;
//! - [`GatewayParts`]: the ports that the faces use;
//! - [`GatewaySection`]: the configuration.
//!
//! The gateway runs neither tools nor turns: behind it is only the bus.

mod face;
mod gateway;
mod identity;
mod parts;
mod section;

pub use self::{
    face::{Access, BODY_BYTES, Face, RESPONSE_TIMEOUT, Route, RouteLimits},
    gateway::{Gateway, GatewayServer},
    identity::{Credential, FaceName, Identity, NamePatterns, Right},
    parts::GatewayParts,
    section::{ConnectionSection, GatewaySection, ProxySection, SignIn},
};

/// The commented default configuration of `rockbot-gateway`.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");
