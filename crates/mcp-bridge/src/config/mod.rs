//! The servers file.
//!
//! It has the format of the `mcp.json` that MCP clients share; see [`ServersFile::read`].

mod expand;
mod file;
mod oauth;
mod server;
mod watch;

pub(crate) use self::file::MAX_SERVERS;
pub use self::{
    file::{ServersFile, ServersFileError},
    oauth::{Grant, OAuthClient},
    server::{Program, Protocol, Remote, ServerConfig, Transport},
    watch::FileWatch,
};
