//! Name resolution.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;

use futures_util::future::BoxFuture;

/// A resolver of host names. Its results are checked by the [`DialPolicy`](crate::DialPolicy) that holds
/// it; the resolver itself need not check anything.
pub trait NameLookup: Debug + Send + Sync {
    /// Returns the addresses of `host`, each with `port`.
    ///
    /// Dropping the future cancels the lookup.
    ///
    /// # Errors
    /// When the name does not resolve.
    fn lookup<'a>(&'a self, host: &'a str, port: u16)
    -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

impl NameLookup for SystemNames {
    fn lookup<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}
