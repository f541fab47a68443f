//! The servers file.
//!
//! It has the format of the `mcp.json` that MCP clients share; see [`ServersFile::read`].

mod client_entry;
mod client_file;
mod file;
mod loose;
mod oauth;
mod openapi;
mod placeholders;
mod server;

pub use self::{
    client_file::{ClientFile, ClientServer},
    file::{ServersFile, ServersFileError},
    oauth::{Grant, OAuthClient},
    server::{Program, Protocol, Remote, ServerConfig, Transport},
};
pub(crate) use self::{
    file::{MAX_FILE_BYTES, MAX_SERVERS},
    openapi::with_document_key,
};
