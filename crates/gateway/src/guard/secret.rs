//! Random secrets and their hashes.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// Hash of a secret. Only hashes are kept and compared, so that the time of a comparison says nothing about
/// the secret.
pub(crate) type SecretHash = [u8; 32];

/// The system has no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("no random numbers from the system: {0}")]
pub struct NoRandomness(getrandom::Error);

/// Returns `N` random bytes as text that needs no escaping in URLs and headers.
pub(crate) fn generate<const N: usize>() -> Result<String, NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns the hash of a secret.
pub(crate) fn hash(secret: &str) -> SecretHash {
    Sha256::digest(secret.as_bytes()).into()
}
