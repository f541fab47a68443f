//! Handles and owners of stored outputs.

use std::fmt;

use rockbot_contracts::{AgentName, SessionId};
use rockbot_store::{InvalidKey, Key, Prefix};
use sha2::{Digest, Sha256};

use crate::context::ToolContext;

const PREFIX: &str = "out-";
/// 128 bits, so that handles cannot be guessed.
const RANDOM_BYTES: usize = 16;

/// Identifier of an output for models. It is valid only together with the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handle(String);

impl Handle {
    /// Generates a unique handle that cannot be guessed. Returns `None` if the system provides no random
    /// numbers.
    pub(super) fn generate() -> Option<Self> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).ok()?;
        Some(Self(format!("{PREFIX}{}", hex(&random))))
    }

    /// Parses a handle. Returns `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().strip_prefix(PREFIX)?;
        let is_valid = digits.len() == 2 * RANDOM_BYTES
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_valid.then(|| Self(format!("{PREFIX}{digits}")))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One conversation of one agent, derived from facts that the system provides. The owner is part of
/// every key, so the outputs of other owners are not accessible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner(String);

impl Owner {
    /// Returns the owner of a call's outputs.
    pub(super) fn from_context(context: &ToolContext) -> Self {
        Self::new(&context.agent, &context.session_id)
    }

    /// Returns the owner of the outputs of an agent in a conversation.
    pub(super) fn new(agent: &AgentName, session: &SessionId) -> Self {
        let mut hash = Sha256::new();
        hash.update(agent.as_str());
        hash.update([0]);
        hash.update(session.as_str());
        Self(hex(&hash.finalize()))
    }

    /// Returns the key prefix of the records of all its outputs.
    pub(super) fn records(&self) -> Result<Prefix, InvalidKey> {
        Prefix::new(["outputs", &self.0])
    }

    /// Returns the key of an output's record.
    pub(super) fn record(&self, handle: &Handle) -> Result<Key, InvalidKey> {
        Key::new(["outputs", &self.0, handle.as_str()])
    }

    /// Returns the key of a piece of an output.
    pub(super) fn piece(&self, handle: &Handle, number: usize) -> Result<Key, InvalidKey> {
        Key::new(["output-pieces", &self.0, handle.as_str(), &number.to_string()])
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_handles_are_parsed() {
        let handle = Handle::generate().unwrap();
        assert_eq!(Handle::parse(handle.as_str()), Some(handle.clone()));
        assert_ne!(Handle::generate(), Some(handle));
        for text in ["", "out-", "out-../../x", "out-0123", &format!("out-{}", "G".repeat(32))] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}
