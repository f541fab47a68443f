//! The configuration section `[bus]`.

use std::path::PathBuf;

use rockbot_contracts::topology::DEFAULT_NAMESPACE;
use secrecy::SecretString;
use serde::Deserialize;

/// `[bus]`: the bus and the namespace on it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSection {
    /// `amqp://` or `amqps://` URL of the broker, or `memory` in a process that embeds the fleet.
    pub url: SecretString,
    /// Name of the exchange and prefix of the queues. Default `rockbot`.
    pub namespace: String,
    /// Certificates, for `amqps://`.
    pub tls: TlsSection,
}

/// `[bus.tls]`: files in PEM, for `amqps://`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSection {
    /// Authorities that may issue the broker's certificate; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// Client certificate; requires `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Key of the client certificate; requires `cert_file`.
    pub key_file: Option<PathBuf>,
}

impl Default for BusSection {
    fn default() -> Self {
        Self {
            url: SecretString::from("memory"),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            tls: TlsSection::default(),
        }
    }
}
