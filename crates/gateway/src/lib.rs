//! The fleet over HTTP: faces for people and programs, behind one guard.
//!
//! - [`Gateway`]: the faces, composed into one router; [`GatewayServer`] serves it;
//! - [`Face`], [`Route`], [`Access`]: the routes of one protocol, each with the access that it requires;
//! - [`Guard`]: checks every request before its route; [`TokenFile`]: the bearer tokens of programs;
//! - [`McpFace`]: the face for MCP clients, which discovers the tools of the fleet;
//! - [`ToolCalls`]: calls of tools by hand;
//! - [`Identity`]: the sender of a request, and what it may use;
//! - [`RemoteAgents`]: agents of others that speak A2A, as agents of the bus;
//! - [`GatewayParts`]: the ports that the faces use;
//! - [`A2aParts`]: push notifications and signed cards of the A2A protocol;
//! - [`GatewaySection`]: the configuration.
//!
//! The gateway runs neither tools nor turns: behind it is only the bus.

mod a2a;
mod a2a_parts;
mod api;
mod call_record;
mod clock;
mod console;
mod decision;
mod event_stream;
mod face;
mod gateway;
mod guard;
mod hex;
mod id_scope;
mod identity;
mod mcp;
mod open_counts;
mod openai;
mod parts;
mod rates;
mod remote_agents;
mod section;
mod store_limit;
#[cfg(test)]
mod test_replies;
mod tool_calls;
mod turns;

pub use self::{
    a2a_parts::{A2aParts, A2aPartsError, PushOptions, SigningKeyError},
    api::description as openapi_description,
    face::{Access, BODY_BYTES, Face, RESPONSE_TIMEOUT, Rate, Route, RouteLimits},
    gateway::{Gateway, GatewayServer},
    guard::{AuditAction, Guard, GuardError, NoRandomness, Token, TokenError, TokenFile, audit},
    identity::{Credential, FaceName, Identity, NamePatterns, Right},
    mcp::McpFace,
    parts::GatewayParts,
    remote_agents::{CardKeysError, RemoteAgentSection, RemoteAgents, RemoteAgentsError},
    section::{A2aSection, ConnectionSection, GatewaySection, ProxySection, PushSection, SignIn},
    tool_calls::ToolCalls,
};

/// The commented default configuration of `rockbot-gateway`.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");
