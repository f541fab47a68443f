//! The name of a kept output, and whose it is.

use std::fmt;

use rockbot_store::{InvalidKey, Key, Prefix};
use sha2::{Digest, Sha256};

use crate::context::ToolContext;

const MARK: &str = "out-";
/// Enough that nobody guesses one.
const RANDOM_BYTES: usize = 16;

/// What a model asks for an output by. It opens nothing without its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handle(String);

impl Handle {
    /// A handle that never was and that nobody can guess; none without a source of chance.
    pub(super) fn generate() -> Option<Self> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).ok()?;
        Some(Self(format!("{MARK}{}", hex(&random))))
    }

    /// A handle as a model wrote it; none when there can't be such a one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().strip_prefix(MARK)?;
        let is_one = digits.len() == 2 * RANDOM_BYTES
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_one.then(|| Self(format!("{MARK}{digits}")))
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

/// One conversation of one agent, by what the system says about a call. It is part of every key,
/// so what belongs to another owner is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner(String);

impl Owner {
    /// Whose call it is.
    pub(super) fn of(context: &ToolContext) -> Self {
        let mut hash = Sha256::new();
        hash.update(context.agent.as_str());
        hash.update([0]);
        hash.update(context.session_id.as_str());
        Self(hex(&hash.finalize()))
    }

    /// Where the records of all its outputs are.
    pub(super) fn records(&self) -> Result<Prefix, InvalidKey> {
        Prefix::new(["outputs", &self.0])
    }

    pub(super) fn record(&self, handle: &Handle) -> Result<Key, InvalidKey> {
        Key::new(["outputs", &self.0, handle.as_str()])
    }

    /// Where a piece of an output is.
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
    fn only_what_was_generated_reads_as_a_handle() {
        let handle = Handle::generate().unwrap();
        assert_eq!(Handle::parse(handle.as_str()), Some(handle.clone()));
        assert_ne!(Handle::generate(), Some(handle));
        for text in ["", "out-", "out-../../x", "out-0123", &format!("out-{}", "G".repeat(32))] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}
