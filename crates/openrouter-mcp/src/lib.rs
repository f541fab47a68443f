//! An MCP server with six read-only tools for an OpenRouter account.
//!
//! - [`AccountTool`]: the tools and their queries;
//! - [`OpenRouter`]: the client, which sends the key to no other host;
//! - [`AccountServer`]: the tools as an MCP server;
//! - [`HttpServer`] and [`serve_stdio`]: the transports.

mod account_server;
mod http;
mod openrouter;
mod query;
mod section;
mod stdio;
mod tools;

pub use account_server::AccountServer;
pub use http::{HttpOptions, HttpServer};
pub use openrouter::{ClientError, OpenRouter, UpstreamError};
pub use query::{Identifier, InvalidIdentifier, Query};
pub use section::{OpenRouterSection, ServerSection, Transport};
pub use stdio::serve_stdio;
pub use tools::{AccountTool, InvalidArguments};

/// The commented default configuration.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");
