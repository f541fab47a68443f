//! The MCP bridge: sessions with MCP servers over every transport and protocol era, and the service
//! behind `tool.invoke.mcp`.

mod backoff;
mod bridge;
mod call_error;
mod call_link;
mod catalog;
mod change_stream;
mod client;
mod config;
mod connect;
mod content;
mod definitions;
mod elicitation;
mod entry_page;
mod era;
mod followed_resources;
mod frame;
mod loopback;
pub mod oauth;
mod openapi;
mod output_check;
mod ownership;
mod probe;
mod queue;
mod raw_list;
mod raw_response;
pub mod registry;
mod result;
mod section;
mod server;
mod server_call;
mod server_session;
mod service;
mod session;
mod state;
mod states;
mod status;
mod summary;
mod task_handles;
mod task_run;
mod telemetry;
mod tool_caller;
mod tool_page;
mod trace;
pub mod transport;

pub use bridge::{Bridge, BridgeOptions, RegistrationPolicy};
pub use config::{
    ClientFile, ClientServer, InvalidServer, OAuthClient, OutputViolations, Program, Protocol,
    Remote, ServerConfig, ServersFile, ServersFileError, Transport,
};
pub use queue::QueueConfig;
pub use section::McpSection;
pub use service::{BridgeService, SERVICE};
pub use status::ServerStatus;
