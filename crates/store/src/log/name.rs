//! Names of logs.

use std::fmt;

use crate::key::{InvalidKey, Key};

/// The name of a log: segments with the encoding, limits and order of a [`Key`].
///
/// Logs and entries of a store have separate names: a log may have the name of an entry.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogName(Key);

impl LogName {
    /// Creates a name from its segments.
    ///
    /// # Errors
    /// See [`Key::new`].
    pub fn new<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Result<Self, InvalidKey> {
        Key::new(segments).map(Self)
    }

    /// Parses the form that [`LogName::as_str`] returns.
    ///
    /// # Errors
    /// See [`Key::parse`].
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        Key::parse(text).map(Self)
    }

    /// Creates a name with the segments of a key.
    #[must_use]
    pub fn from_key(key: Key) -> Self {
        Self(key)
    }

    /// Returns the encoded form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the name as a key, for a [`Prefix`](crate::Prefix).
    #[must_use]
    pub fn as_key(&self) -> &Key {
        &self.0
    }

    /// Returns the segments, decoded.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = String> {
        self.0.segments()
    }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogName({})", self.0)
    }
}
