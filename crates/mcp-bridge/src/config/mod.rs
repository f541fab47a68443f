//! Which servers a bridge serves, as operators write it down.
//!
//! The file is the `mcp.json` that MCP clients share. See [`ServersFile::read`] for its forms.

mod expand;
mod file;
mod oauth;
mod server;
mod watch;

pub(crate) use self::file::MOST_SERVERS;
pub use self::{
    file::{FileProblem, ServersFile},
    oauth::OAuthClient,
    server::{Program, Protocol, Remote, ServerConfig, Transport},
    watch::FileWatch,
};
