//! The servers file.
//!
//! It has the format of the `mcp.json` that MCP clients share; see [`ServersFile::read`].

mod client_entry;
mod client_file;
mod error;
mod file;
mod limits;
mod loose;
mod oauth;
mod openapi;
mod paths;
mod placeholders;
mod server;

pub use self::{
    client_file::{ClientFile, ClientServer},
    error::ServersFileError,
    file::{InvalidServer, ServersFile},
    oauth::{Grant, OAuthClient},
    server::{OutputViolations, Program, Protocol, Remote, ServerConfig, Transport},
};
pub(crate) use self::{
    limits::{MAX_FILE_BYTES, MAX_SERVERS},
    openapi::with_document_key,
};
