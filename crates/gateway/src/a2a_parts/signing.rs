//! Signatures of cards: ES256 (RFC 7515) over the canonical JSON (RFC 8785) of a card.

use std::{fmt, io, path::Path};

use aws_lc_rs::{
    error::Unspecified,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Largest file of a key, in bytes.
const MAX_KEY_BYTES: u64 = 64 * 1024;
/// Length of a coordinate of a point on the curve P-256, in bytes.
const COORDINATE_BYTES: usize = 32;

/// Signs the cards of agents.
pub(crate) struct CardSigner {
    key: EcdsaKeyPair,
    key_id: String,
    /// The protected header of every signature, in base64.
    protected: String,
}

/// Why cards cannot be signed with a key.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file has no private key.
    #[error("the file has no private key in PEM; create one with `{CREATE_KEY}`")]
    NoKey,
    /// The key is no valid key of ES256.
    #[error("the key is no valid ECDSA key of the curve P-256; create one with `{CREATE_KEY}`")]
    WrongKey,
}

const CREATE_KEY: &str = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256";

impl CardSigner {
    /// Reads a private key of the curve P-256 in PEM (PKCS #8 or SEC 1).
    ///
    /// # Errors
    /// When the file cannot be read, or has no such key.
    pub(crate) fn read(path: &Path) -> Result<Self, SigningKeyError> {
        if std::fs::metadata(path)?.len() > MAX_KEY_BYTES {
            return Err(SigningKeyError::NoKey);
        }
        Self::from_pem(&std::fs::read(path)?)
    }

    fn from_pem(pem: &[u8]) -> Result<Self, SigningKeyError> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| SigningKeyError::NoKey)?;
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::from_private_key_der(algorithm, key.secret_der())
            .map_err(|_| SigningKeyError::WrongKey)?;
        let key_id = thumbprint(key.public_key().as_ref()).ok_or(SigningKeyError::WrongKey)?;
        let protected = json!({"alg": "ES256", "kid": key_id, "typ": "JOSE"});
        Ok(Self { key, key_id, protected: URL_SAFE_NO_PAD.encode(protected.to_string()) })
    }

    /// Returns the id of the key: the thumbprint of its public part (RFC 7638).
    pub(crate) fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Returns the signature of a card, which has no signatures. The card must have no empty text, list or object:
    /// clients disagree whether these are signed.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn sign(&self, card: &Value) -> Result<Value, Unspecified> {
        let canonical = serde_json_canonicalizer::to_vec(card).map_err(|_| Unspecified)?;
        let signed = format!("{}.{}", self.protected, URL_SAFE_NO_PAD.encode(canonical));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes())?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(json!({"protected": self.protected, "signature": signature}))
    }
}

impl fmt::Debug for CardSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardSigner").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// Returns the thumbprint of a public key, an uncompressed point.
fn thumbprint(public_key: &[u8]) -> Option<String> {
    let coordinates = public_key.strip_prefix(&[4])?;
    let coordinates: &[u8; 2 * COORDINATE_BYTES] = coordinates.try_into().ok()?;
    let (x, y) = coordinates.split_at(COORDINATE_BYTES);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    // The order and form that the RFC requires.
    let key = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    Some(URL_SAFE_NO_PAD.encode(Sha256::digest(key)))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use rcgen::{KeyPair as Generated, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};

    use super::*;

    #[test]
    fn signature_covers_the_canonical_card() {
        let pem = Generated::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
        let signer = CardSigner::from_pem(pem.as_bytes()).unwrap();
        let signed =
            signer.sign(&json!({"b": "\u{e9}\n\"", "a": [true, {"d": 1, "c": 2}]})).unwrap();
        let protected = signed["protected"].as_str().unwrap();
        let header = URL_SAFE_NO_PAD.decode(protected).unwrap();
        let header: Value = serde_json::from_slice(&header).unwrap();
        assert_eq!(header, json!({"alg": "ES256", "typ": "JOSE", "kid": signer.key_id()}));
        let canonical = "{\"a\":[true,{\"c\":2,\"d\":1}],\"b\":\"\u{e9}\\n\\\"\"}";
        let content = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(canonical));
        let signature = URL_SAFE_NO_PAD.decode(signed["signature"].as_str().unwrap()).unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, signer.key.public_key());
        key.verify(content.as_bytes(), &signature).unwrap();
        assert!(key.verify(content.to_uppercase().as_bytes(), &signature).is_err());
    }

    #[test]
    fn thumbprint_is_that_of_the_public_key() {
        // The point of RFC 7515, appendix A.3, and its thumbprint.
        let x = URL_SAFE_NO_PAD.decode("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU").unwrap();
        let y = URL_SAFE_NO_PAD.decode("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0").unwrap();
        let point = [vec![4], x, y].concat();
        assert_eq!(
            thumbprint(&point).as_deref(),
            Some("oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U")
        );
        assert_eq!(thumbprint(&point[..40]), None);
    }

    #[test]
    fn other_keys_are_refused() {
        let other = Generated::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        let wrong = CardSigner::from_pem(other.as_bytes()).unwrap_err();
        assert!(matches!(wrong, SigningKeyError::WrongKey), "{wrong}");
        let public = Generated::generate().unwrap().public_key_pem();
        for text in ["", "secret", public.as_str()] {
            let missing = CardSigner::from_pem(text.as_bytes()).unwrap_err();
            assert!(matches!(missing, SigningKeyError::NoKey), "{missing}");
        }
        let unreadable = CardSigner::read(Path::new("/nowhere/card.key")).unwrap_err();
        assert!(matches!(unreadable, SigningKeyError::Unreadable(_)), "{unreadable}");
    }
}
