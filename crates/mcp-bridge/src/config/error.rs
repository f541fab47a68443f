//! Errors of a servers file.

use std::{io, str::Utf8Error};

use rockbot_service::watch::FileError;

/// A servers file that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ServersFileError {
    /// It cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A comment in it has no end.
    #[error("it is not JSON: {0}")]
    Comment(io::Error),
    /// It is neither JSON nor TOML. The message does not quote the text, which may have secrets.
    #[error("it is not TOML: {0}")]
    Toml(String),
    /// The servers or tools that it permits are not a list of names.
    #[error("{0} restricts its servers and must be a list of names")]
    Restriction(&'static str),
    /// It is not UTF-8.
    #[error("it is not UTF-8: {0}")]
    Encoding(Utf8Error),
    /// It has no servers in a known form.
    #[error(
        "it has no servers; they must be in an object \"mcpServers\", or in another key that an MCP client \
         uses for them"
    )]
    UnknownForm,
}
