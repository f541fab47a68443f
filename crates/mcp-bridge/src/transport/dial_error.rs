//! Refused addresses and redirects, and failed name resolution.

/// The maximum number of redirects.
pub(super) const MAX_REDIRECTS: usize = 5;

/// The reason why a URL or an address is not dialed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// The scheme is not `http`, `https`, `ws` or `wss`.
    #[error("the server's URL has the scheme `{0}:`; use https:// or wss://")]
    Scheme(String),
    /// The connection would not be encrypted.
    #[error("the server's URL is not https; use https, or set mcp.allow_plain_http")]
    Plain,
    /// The URL holds credentials, which would be logged and displayed with it.
    #[error("the server's URL holds a user or password; move them into a header")]
    UserInfo,
    /// The URL has no host.
    #[error("the server's URL has no host")]
    NoHost,
    /// The address is private and not allowed.
    #[error(
        "`{0}` has a private address; add the host or its network to mcp.allow_private to dial it"
    )]
    Private(String),
    /// The address is never dialed.
    #[error("`{0}` has an address that is never dialed")]
    Forbidden(String),
}

/// A failed name resolution.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve the name `{host}`")]
pub struct DnsFailed {
    host: String,
    #[source]
    source: Option<std::io::Error>,
}

impl DnsFailed {
    /// Creates the error for `host`. Without a source, the name has no address.
    pub(super) fn new(host: &str, source: Option<std::io::Error>) -> Self {
        Self { host: host.to_owned(), source }
    }

    /// Returns a copy for another error; `io::Error` is not `Clone`.
    pub(crate) fn duplicate(&self) -> Self {
        let source = self.source.as_ref();
        let source = source.map(|error| std::io::Error::new(error.kind(), error.to_string()));
        Self { host: self.host.clone(), source }
    }
}

/// The reason why a redirect was not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefused {
    /// Headers, session and arguments are sent to this server only.
    #[error("the server redirects to another origin; configure that URL if it is the right one")]
    ForeignOrigin,
    /// The redirect would drop the message: it turns a POST into a GET.
    #[error("the server redirects with status {0}, which drops the message")]
    DropsMessage(u16),
    /// Too many redirects.
    #[error("the server redirects more than {MAX_REDIRECTS} times")]
    TooMany,
    /// The target is not dialed.
    #[error("the server redirects to a URL that is not dialed")]
    Address(#[from] AddressRefused),
}
