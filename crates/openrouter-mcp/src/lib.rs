//! An MCP server with six read-only tools for an OpenRouter account.
//!
//! - [`AccountTool`]: the tools, and what each asks OpenRouter;
//! - [`OpenRouter`]: the client, which gives the key to nobody else;
//! - [`AccountServer`]: the tools as an MCP server;
//! - [`HttpServer`] and [`serve_stdio`]: two ways to reach it.

mod account_server;
mod http;
mod openrouter;
mod question;
mod section;
mod stdio;
mod tools;

pub use account_server::AccountServer;
pub use http::{HttpOptions, HttpServer};
pub use openrouter::{ClientError, OpenRouter, UpstreamError};
pub use question::{Identifier, InvalidIdentifier, Question};
pub use section::{OpenRouterSection, ServerSection, Transport};
pub use stdio::serve_stdio;
pub use tools::{AccountTool, InvalidArguments};

/// The commented defaults.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");
