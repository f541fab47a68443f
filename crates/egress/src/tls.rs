//! TLS configuration: server certificates are verified against the system's and the operator's roots.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::Verifier;

use crate::error::EgressError;
use crate::policy::DialPolicy;

/// Returns the TLS configuration of all guarded connections, for protocols other than HTTP too.
///
/// # Errors
/// [`EgressError::Tls`] when the system's or the operator's certificates cannot be read.
pub fn tls_config(policy: &DialPolicy) -> Result<ClientConfig, EgressError> {
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
