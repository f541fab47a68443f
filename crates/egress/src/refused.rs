//! Refused addresses and redirects, and failed name resolution.

/// The reason why a URL or an address is not dialed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// The scheme is not `http`, `https`, `ws` or `wss`.
    #[error("the URL has the scheme `{0}:`; use https:// or wss://")]
    Scheme(String),
    /// The connection would not be encrypted.
    #[error("the URL is not https; use https, or set allow_plain_http")]
    Plain,
    /// The URL holds credentials, which would be logged and displayed with it.
    #[error("the URL holds a user or password; move them into a header")]
    UserInfo,
    /// The URL has no host.
    #[error("the URL has no host")]
    NoHost,
    /// The port is not one of the allowed ones.
    #[error("port {0} of the URL is not allowed; use another port, or allow this one")]
    Port(u16),
    /// The address is private and not allowed.
    #[error("`{0}` has a private address; add the host or its network to allow_private to dial it")]
    Private(String),
    /// The address is never dialed.
    #[error("`{0}` has an address that is never dialed")]
    Forbidden(String),
}

/// A failed name resolution.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve the name `{host}`")]
pub struct ResolveError {
    host: String,
    #[source]
    source: Option<std::io::Error>,
}

impl ResolveError {
    /// Creates the error for `host`. Without a source, the name has no address.
    pub(crate) fn new(host: &str, source: Option<std::io::Error>) -> Self {
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
    /// Headers and bodies are sent to the configured origin only.
    #[error("it leads to another origin; configure that URL if it is the right one")]
    ForeignOrigin,
    /// The redirect would drop the message: it turns a POST into a GET.
    #[error("its status {0} drops the message")]
    DropsMessage(u16),
    /// Too many redirects.
    #[error("there are more than {0} in a row")]
    TooMany(usize),
    /// The redirect leads from https to http.
    #[error("it leads from https to http")]
    Downgrade,
    /// The header `Location` is too long or is no URL.
    #[error("its Location is no valid URL")]
    Location,
    /// The target is not dialed.
    #[error("its target is not dialed")]
    Address(#[from] AddressRefused),
}
