//! Secrets from configuration and environment.

use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

/// Returns the configured secret, or that of the environment variable `name`; empty ones count as
/// absent.
pub(crate) fn key(
    configured: Option<&SecretString>,
    name: &str,
    environment: &impl Fn(&str) -> Option<String>,
) -> Option<SecretString> {
    let trimmed =
        |key: &str| Some(key.trim()).filter(|key| !key.is_empty()).map(SecretString::from);
    let configured = configured.and_then(|key| trimmed(key.expose_secret()));
    configured.or_else(|| trimmed(&environment(name)?))
}

/// Returns a header with a secret, if its characters permit that.
pub(crate) fn header(secret: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(secret).ok()?;
    header.set_sensitive(true);
    Some(header)
}
