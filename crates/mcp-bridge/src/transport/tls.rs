//! How servers prove who they are: by a certificate that this machine, or the operator, trusts.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::Verifier;

use super::dial::DialPolicy;
use super::failure::ConnectError;

/// The TLS of every remote transport.
///
/// # Errors
/// When the system's certificates or the operator's can't be read.
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
