//! Ids that are derived from values and a scope, such as a sender and an agent.

use sha2::{Digest, Sha256};

use crate::hex::hex;

/// The scope of derived ids. Ids that are derived from different scopes differ, so that no sender reaches the
/// conversation of another by sending the same values.
#[derive(Debug, Clone)]
pub(crate) struct IdScope(Sha256);

impl IdScope {
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            add(&mut hash, part);
        }
        Self(hash)
    }

    /// Derives an id of 128 bits from values of one kind.
    pub(crate) fn id<'a>(&self, kind: &str, values: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut hash = self.0.clone();
        add(&mut hash, kind.as_bytes());
        for value in values {
            add(&mut hash, value);
        }
        hex(&hash.finalize()[..16])
    }
}

/// Adds a value with its length, so that no other division of the same bytes has the same hash.
fn add(hash: &mut Sha256, value: &[u8]) {
    hash.update((value.len() as u64).to_be_bytes());
    hash.update(value);
}
