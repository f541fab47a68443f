//! The servers file.
//!
//! It has the format of the `mcp.json` that MCP clients share; see [`ServersFile::read`].

mod file;
mod oauth;
mod openapi;
mod server;

pub(crate) use self::{
    file::{MAX_FILE_BYTES, MAX_SERVERS},
    openapi::with_document_key,
};
pub use self::{
    file::{ServersFile, ServersFileError},
    oauth::{Grant, OAuthClient},
    server::{Program, Protocol, Remote, ServerConfig, Transport},
};
