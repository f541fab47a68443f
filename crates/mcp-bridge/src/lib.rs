//! Sessions with MCP servers of any kind and era, and the process behind `tool.invoke.mcp`.

mod backoff;
mod bridge;
mod client;
mod config;
mod connect;
mod definitions;
mod frame;
pub mod oauth;
mod offer;
mod ownership;
mod queue;
mod result;
mod section;
mod server;
mod service;
mod session;
mod summary;
mod telemetry;
pub mod transport;

pub use bridge::{Bridge, BridgeOptions, RegistrationPolicy, ServerStatus};
pub use config::{
    FileProblem, FileWatch, OAuthClient, Program, Protocol, Remote, ServerConfig, ServersFile,
    Transport,
};
pub use queue::QueueConfig;
pub use section::McpSection;
pub use service::{BridgeService, SERVICE};
