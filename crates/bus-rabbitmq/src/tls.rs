//! TLS to the broker: whom we trust, and who we are.

use std::{fs, path::Path, path::PathBuf};

use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// The files of an `amqps://` connection, in PEM. They are read again for each connection, so they
/// can be replaced while a process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that the broker's certificate may come from, and no others.
    /// Those of the system when absent.
    pub ca_file: Option<PathBuf>,
    /// This process's own certificate and those between it and its authority. Goes with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate. Goes with `cert_file`.
    pub key_file: Option<PathBuf>,
}

/// Why there is no TLS with these files.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{key}: {} can't be read: {reason}", path.display())]
    Unreadable { key: &'static str, path: PathBuf, reason: String },
    #[error("{key}: {} holds no {what} in PEM", path.display())]
    Empty { key: &'static str, path: PathBuf, what: &'static str },
    #[error("tls.cert_file and tls.key_file go together: set both, or none")]
    Half,
    #[error(
        "tls: the certificates can't be used: {reason}; is the key that of the certificate, and does \
         the system have authorities where tls.ca_file names none?"
    )]
    Unusable { reason: String },
}

const CA: &str = "tls.ca_file";
const CERT: &str = "tls.cert_file";
const KEY: &str = "tls.key_file";

impl TlsFiles {
    /// Whether none is named.
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
            _ => return Err(TlsError::Half),
        };
        connector.map_err(|error| TlsError::Unusable { reason: error.to_string() })
    }
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&read(key, path)?).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::Empty { key, path: path.to_owned(), what: "certificate" }),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(KEY, path)?).map_err(|_| TlsError::Empty {
        key: KEY,
        path: path.to_owned(),
        what: "private key",
    })
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Unreadable {
        key,
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// What to do about an encrypted connection that failed, by the words of the TLS library and of the
/// system.
pub(crate) fn advice(error: &str) -> Option<&'static str> {
    const ADVICE: [(&str, &str); 10] = [
        (
            "UnknownIssuer",
            "the broker's certificate is not from an authority trusted here; see bus.tls.ca_file",
        ),
        (
            "invalid peer certificate: certificate expired",
            "the broker's certificate has expired, or a clock is wrong",
        ),
        ("not valid for name", "the broker's certificate is for another host than that of bus.url"),
        ("CertificateExpired", "this process's certificate has expired; renew bus.tls.cert_file"),
        ("CertificateRequired", "the broker wants a certificate; set bus.tls.cert_file"),
        ("UnknownCA", "the broker does not know the authority of bus.tls.cert_file"),
        ("BadCertificate", "the broker does not take bus.tls.cert_file"),
        // The broker says why and hangs up, and the system may drop its last words.
        ("Connection reset", HUNG_UP),
        ("Broken pipe", HUNG_UP),
        ("close_notify", HUNG_UP),
    ];
    ADVICE.iter().find(|(words, _)| error.contains(words)).map(|(_, advice)| *advice)
}

const HUNG_UP: &str = "the broker hung up: does it want a certificate, or another one? see \
                       bus.tls.cert_file, and the broker's log";
