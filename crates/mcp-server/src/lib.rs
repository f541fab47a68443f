//! The fleet as an MCP server: any MCP client calls its tools and agents, within its rights.
//!
//! - [`McpFleet`]: the tools of a fleet, with their calls and large results, for all clients;
//! - [`McpClient`]: an authenticated client and the tools that it may use;
//! - [`serve_stdio`] and [`serve_streams`]: serve the parent process, or a pair of streams; [`McpHttp`]: serves clients over streamable HTTP;
//! - [`DirectCall`]: a call by a client that does not speak the protocol;
//! - [`CallObserver`]: admits the calls of HTTP requests, and learns how they end;
//! - [`Discovery`]: the handlers and the bridges of a fleet on a bus.
//!
//! A client is a caller like an agent: its calls cross the bus, are recorded in the journal of a handler, and
//! every error says whether the tool ran.

mod call_id;
mod call_observer;
mod call_result;
mod catalog_changes;
mod changes;
mod client;
mod direct_call;
mod discovery;
mod fleet;
mod handler;
mod http;
mod http_sessions;
mod known_outputs;
mod output_resource;
mod prompts;
mod search;
mod search_tools;
mod section;
mod sent_events;
mod server_tools;
mod shared_calls;
mod stdio;
mod tool_call;
mod tool_definition;
mod tool_listing;

pub use self::{
    call_observer::{CallObserver, ObservedCall, RequestObserver},
    client::{InvalidClient, McpClient},
    direct_call::{CompletedCall, DirectCall, DirectCallError},
    discovery::Discovery,
    fleet::{FleetParts, McpFleet},
    http::{HttpOptions, McpHttp},
    section::McpServerSection,
    shared_calls::CallOutcome,
    stdio::{StdioError, serve_stdio, serve_streams},
};
