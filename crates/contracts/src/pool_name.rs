//! Names of handler pools.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// Maximum length of a pool's name in bytes.
const MAX_NAME_BYTES: usize = 32;

/// An invalid name of a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not the name of a pool: use 1 to {MAX_NAME_BYTES} lower-case letters, digits and `-`"
)]
pub struct InvalidPoolName {
    name: String,
}

/// Name of a pool: 1 to 32 of `a` to `z`, `0` to `9` and `-`. It is one segment of a routing key and of
/// the name of a broker user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolName(Arc<str>);

impl PoolName {
    /// Validates a name.
    ///
    /// # Errors
    /// When it is empty, over 32 bytes, or contains another character.
    pub fn new(name: &str) -> Result<Self, InvalidPoolName> {
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
            Ok(Self(name.into()))
        } else {
            Err(InvalidPoolName { name: name.chars().take(64).collect() })
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PoolName {
    type Error = InvalidPoolName;
    fn try_from(name: String) -> Result<Self, InvalidPoolName> {
        Self::new(&name)
    }
}

impl FromStr for PoolName {
    type Err = InvalidPoolName;
    fn from_str(name: &str) -> Result<Self, InvalidPoolName> {
        Self::new(name)
    }
}

impl From<PoolName> for String {
    fn from(name: PoolName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_name_is_one_plain_segment() {
        for name in ["web", "a-1", "0", "-", &"x".repeat(32)] {
            assert_eq!(PoolName::new(name).unwrap().as_str(), name);
        }
        for bad in ["", "Web", "a.b", "a_b", "*", "#", "web ", "wéb", &"x".repeat(33)] {
            assert!(PoolName::new(bad).is_err(), "{bad:?}");
        }
    }
}
