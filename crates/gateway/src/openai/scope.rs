//! The sender and the agent of a request, which ids are derived from.

use axum::http::HeaderMap;
use rockbot_contracts::AgentName;
use sha2::{Digest, Sha256};

use crate::identity::{Credential, Identity};

/// Header with the id of a person that Open WebUI adds where it forwards information on users.
const USER_HEADER: &str = "x-openwebui-user-id";

/// A sender and an agent. Ids that are derived from different scopes differ, so that no sender reaches the
/// conversation of another by sending the same messages.
#[derive(Debug, Clone)]
pub(super) struct Scope(Sha256);

impl Scope {
    /// Creates the scope of a request. A program with a token may name the person on whose behalf it sends the
    /// request.
    pub(super) fn new(
        identity: &Identity,
        agent: &AgentName,
        headers: &HeaderMap,
        user: Option<&str>,
    ) -> Self {
        let person = (identity.credential == Credential::Token).then(|| headers.get(USER_HEADER));
        let person = person.flatten().map(|person| person.as_bytes()).unwrap_or_default();
        let parts = [
            identity.subject.as_bytes(),
            agent.as_str().as_bytes(),
            person,
            user.unwrap_or_default().as_bytes(),
        ];
        let mut hash = Sha256::new();
        for part in parts {
            add(&mut hash, part);
        }
        Self(hash)
    }

    /// Derives an id of 128 bits from values of one kind.
    pub(super) fn id<'a>(&self, kind: &str, values: impl IntoIterator<Item = &'a [u8]>) -> String {
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
