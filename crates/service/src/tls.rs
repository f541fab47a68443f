//! The TLS stack of every process.

/// Installs the TLS provider: rustls with aws-lc-rs. Later calls in the same process change nothing.
pub fn install_tls_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
