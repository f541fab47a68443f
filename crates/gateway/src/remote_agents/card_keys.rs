//! Verification of the signatures of cards: ES256 (RFC 7515) over the canonical JSON (RFC 8785) of a card.

use std::{fmt, io, path::Path};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};
use serde::Deserialize;
use serde_json::Value;

/// Largest file of keys, in bytes.
const MAX_KEYS_BYTES: u64 = 64 * 1024;
/// Maximum number of keys, and of signatures that are read.
const MAX_KEYS: usize = 8;

/// The public keys of which one must have signed a card.
pub(super) struct CardKeys(Vec<ParsedPublicKey>);

/// Why cards cannot be verified with keys.
#[derive(Debug, thiserror::Error)]
pub enum CardKeysError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file has no public key, or too many.
    #[error(
        "the file must have 1 to 8 public keys in PEM; `openssl pkey -in KEY -pubout` writes that of a private key"
    )]
    NoKey,
    /// A key is no valid key of ES256.
    #[error("a key is no valid ECDSA key of the curve P-256")]
    WrongKey,
}

#[derive(Deserialize)]
struct Signature {
    protected: String,
    signature: String,
}

/// The protected header of a signature.
#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood; none are.
    crit: Option<Value>,
}

impl CardKeys {
    /// Reads public keys of the curve P-256 in PEM.
    ///
    /// # Errors
    /// When the file cannot be read, or has no such keys.
    pub(super) fn read(path: &Path) -> Result<Self, CardKeysError> {
        if std::fs::metadata(path)?.len() > MAX_KEYS_BYTES {
            return Err(CardKeysError::NoKey);
        }
        Self::from_pem(&std::fs::read(path)?)
    }

    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, CardKeysError> {
        let keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem).map(|key| {
            let key = key.map_err(|_| CardKeysError::NoKey)?;
            ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.as_ref())
                .map_err(|_| CardKeysError::WrongKey)
        });
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        if (1..=MAX_KEYS).contains(&keys.len()) {
            Ok(Self(keys))
        } else {
            Err(CardKeysError::NoKey)
        }
    }

    /// Returns whether one of the keys signed the card. Signatures are made over the card as it is, or, as by the libraries of
    /// A2A, over the card without its empty values, which mean the same.
    pub(super) fn verify(&self, card: &Value) -> bool {
        let Some(mut content) = card.as_object().cloned() else { return false };
        let Some(Value::Array(signatures)) = content.remove("signatures") else { return false };
        let mut content = Value::Object(content);
        let whole = canonical(&content);
        remove_empty(&mut content);
        let contents = [whole, canonical(&content)];
        signatures.iter().take(MAX_KEYS).any(|signature| {
            contents.iter().flatten().any(|content| self.signed(signature, content))
        })
    }

    /// Returns whether a signature is one of a key over the encoded content.
    fn signed(&self, signature: &Value, content: &str) -> bool {
        let Ok(Signature { protected, signature }) = Signature::deserialize(signature) else {
            return false;
        };
        let header = URL_SAFE_NO_PAD.decode(&protected).ok();
        let header = header.and_then(|header| serde_json::from_slice::<Header>(&header).ok());
        let is_understood =
            header.is_some_and(|Header { alg, crit }| alg == "ES256" && crit.is_none());
        let Some(signature) = URL_SAFE_NO_PAD.decode(&signature).ok().filter(|_| is_understood)
        else {
            return false;
        };
        let signed = format!("{protected}.{content}");
        self.0.iter().any(|key| key.verify_sig(signed.as_bytes(), &signature).is_ok())
    }
}

impl fmt::Debug for CardKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CardKeys").field(&self.0.len()).finish()
    }
}

/// Returns the canonical JSON of a card, encoded as the payload of a signature.
fn canonical(content: &Value) -> Option<String> {
    let canonical = serde_json_canonicalizer::to_vec(content).ok()?;
    Some(URL_SAFE_NO_PAD.encode(canonical))
}

/// Removes empty texts, lists and objects, and values that are empty without them.
fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_empty);
            fields.retain(|_, field| !is_empty(field));
        }
        Value::Array(values) => {
            values.iter_mut().for_each(remove_empty);
            values.retain(|value| !is_empty(value));
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
    };
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
    use serde_json::json;

    use super::*;

    struct Key {
        private: EcdsaKeyPair,
        public: String,
    }

    fn key() -> Key {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let private = EcdsaKeyPair::from_private_key_der(algorithm, &pair.serialize_der()).unwrap();
        Key { private, public: pair.public_key_pem() }
    }

    fn signed(card: Value, key: &Key) -> Value {
        signed_with(&json!({"alg": "ES256"}), card, key)
    }

    fn signed_with(header: &Value, mut card: Value, key: &Key) -> Value {
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let content = format!("{protected}.{}", canonical(&card).unwrap());
        let signature = key.private.sign(&SystemRandom::new(), content.as_bytes()).unwrap();
        let signature = URL_SAFE_NO_PAD.encode(signature);
        card["signatures"] = json!([{"protected": protected, "signature": signature}]);
        card
    }

    #[test]
    fn card_of_one_of_the_keys_is_accepted() {
        let (first, second, other) = (key(), key(), key());
        let keys = format!("{}\n{}", first.public, second.public);
        let keys = CardKeys::from_pem(keys.as_bytes()).unwrap();
        let card = json!({"name": "é", "skills": [{"id": "b", "tags": ["c"]}], "b": false});
        for key in [&first, &second] {
            let mut card = signed(card.clone(), key);
            assert!(keys.verify(&card));
            // Empty values mean the same as none.
            card["description"] = json!("");
            card["skills"][0]["examples"] = json!([]);
            assert!(keys.verify(&card));
            card["name"] = json!("e");
            assert!(!keys.verify(&card));
        }
        assert!(!keys.verify(&signed(card.clone(), &other)));
        assert!(!keys.verify(&card));
    }

    #[test]
    fn other_forms_of_signatures_are_refused() {
        let key = key();
        let keys = CardKeys::from_pem(key.public.as_bytes()).unwrap();
        let card = signed(json!({"name": "x"}), &key);
        for header in [
            json!({"alg": "none"}),
            json!({"alg": "HS256"}),
            json!({"alg": "ES256", "crit": ["b64"], "b64": false}),
            json!([]),
        ] {
            let card = signed_with(&header, json!({"name": "x"}), &key);
            assert!(!keys.verify(&card), "{header}");
        }
        for signatures in [json!([]), json!({}), json!([null]), json!([{"protected": 1}])] {
            let mut card = card.clone();
            card["signatures"] = signatures;
            assert!(!keys.verify(&card), "{card}");
        }
        assert!(!keys.verify(&json!("x")));
        let mut many = card.clone();
        let valid = many["signatures"][0].take();
        many["signatures"] = json!(vec![json!({}); MAX_KEYS]);
        many["signatures"].as_array_mut().unwrap().push(valid);
        assert!(!keys.verify(&many));
    }

    #[test]
    fn other_keys_are_refused() {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let wrong = CardKeys::from_pem(pair.public_key_pem().as_bytes()).unwrap_err();
        assert!(matches!(wrong, CardKeysError::WrongKey), "{wrong}");
        let private = pair.serialize_pem();
        for text in ["", "x", private.as_str(), &key().public.repeat(MAX_KEYS + 1)] {
            let missing = CardKeys::from_pem(text.as_bytes()).unwrap_err();
            assert!(matches!(missing, CardKeysError::NoKey), "{missing}");
        }
        let unreadable = CardKeys::read(Path::new("/nowhere/card.pub")).unwrap_err();
        assert!(matches!(unreadable, CardKeysError::Unreadable(_)), "{unreadable}");
    }
}
