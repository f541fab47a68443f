//! TLS configuration: server certificates are verified against the system's and the operator's roots.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::Verifier;

use super::dial_policy::DialPolicy;
use super::failure::ConnectError;

/// Returns the TLS configuration of all remote transports.
///
/// # Errors
/// When the system's or the operator's certificates cannot be read.
pub(crate) fn client_config(policy: &DialPolicy) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        Verifier::new_with_extra_roots(policy.authorities.iter().cloned(), provider.clone())?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(config)
}
