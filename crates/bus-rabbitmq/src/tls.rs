//! TLS to the broker.

use std::{fs, path::Path, path::PathBuf};

use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// PEM files of an `amqps://` connection. They are read for each connection, so that they can be replaced
/// while a process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the trusted authorities; those of the system when absent.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and intermediate certificates. Requires `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Key of the client certificate. Requires `cert_file`.
    pub key_file: Option<PathBuf>,
}

/// Errors of [`TlsFiles`].
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{key}: cannot read {}: {reason}", path.display())]
    Unreadable { key: &'static str, path: PathBuf, reason: String },
    #[error("{key}: {} contains no {expected} in PEM", path.display())]
    Empty { key: &'static str, path: PathBuf, expected: &'static str },
    #[error("tls.cert_file and tls.key_file require each other; set both or neither")]
    Incomplete,
    #[error(
        "tls: invalid certificates: {reason}; check that the key belongs to the certificate, and that \
         the system has authorities if tls.ca_file is not set"
    )]
    Invalid { reason: String },
}

const CA: &str = "tls.ca_file";
const CERT: &str = "tls.cert_file";
const KEY: &str = "tls.key_file";

impl TlsFiles {
    /// Returns whether no file is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn connector(&self) -> Result<RustlsConnector, TlsError> {
        let trust = match &self.ca_file {
            Some(path) => {
                RustlsConnectorConfig::default().with_parsable_certificates(certificates(CA, path)?)
            }
            None => RustlsConnectorConfig::new_with_platform_verifier(),
        };
        let connector = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => {
                trust.connector_with_single_cert(certificates(CERT, cert)?, private_key(key)?)
            }
            (None, None) => trust.connector_with_no_client_auth(),
            _ => return Err(TlsError::Incomplete),
        };
        connector.map_err(|error| TlsError::Invalid { reason: error.to_string() })
    }
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&read(key, path)?).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::Empty { key, path: path.to_owned(), expected: "certificate" }),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(KEY, path)?).map_err(|_| TlsError::Empty {
        key: KEY,
        path: path.to_owned(),
        expected: "private key",
    })
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Unreadable {
        key,
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Returns the remedy for a failed TLS connection, based on the error text of the TLS library or system.
pub(crate) fn advice(error: &str) -> Option<&'static str> {
    const ADVICE: [(&str, &str); 10] = [
        (
            "UnknownIssuer",
            "the broker's certificate is from an untrusted authority; check bus.tls.ca_file",
        ),
        (
            "invalid peer certificate: certificate expired",
            "the broker's certificate has expired; renew it, or correct this machine's clock",
        ),
        ("not valid for name", "the broker's certificate is for another host; check bus.url"),
        ("CertificateExpired", "this process's certificate has expired; renew bus.tls.cert_file"),
        ("CertificateRequired", "the broker requires a certificate; set bus.tls.cert_file"),
        (
            "UnknownCA",
            "the broker does not trust the authority of bus.tls.cert_file; use a certificate of one \
             that it trusts",
        ),
        ("BadCertificate", "the broker rejected bus.tls.cert_file; check the certificate"),
        // The broker sends an alert and closes the connection; the system may drop the alert.
        ("Connection reset", CLOSED),
        ("Broken pipe", CLOSED),
        ("close_notify", CLOSED),
    ];
    ADVICE.iter().find(|(text, _)| error.contains(text)).map(|(_, advice)| *advice)
}

const CLOSED: &str = "the broker closed the connection, possibly for lack of a valid certificate; check \
                      bus.tls.cert_file and the broker's log";
