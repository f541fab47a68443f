//! Keys of entries: segments joined by slashes.

use std::{borrow::Borrow, fmt, sync::Arc};

/// The longest key, in bytes of its encoded form.
pub const MAX_KEY_BYTES: usize = 512;

const SEPARATOR: char = '/';
/// The character that follows the separator; the end of a prefix's range.
const AFTER_SEPARATOR: char = '0';
/// The encoding of an empty segment; no other text is encoded as a lone percent sign.
const EMPTY: &str = "%";

/// Why segments or a text form no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// There is no segment.
    #[error("a key needs at least one segment")]
    Empty,
    /// The key is too long.
    #[error(
        "the key has {bytes} bytes when encoded, over the limit of {MAX_KEY_BYTES}; hash the long segment"
    )]
    TooLong {
        /// The length when encoded, in bytes.
        bytes: usize,
    },
    /// The text is not in the form of [`Key::as_str`].
    #[error("{text:?} is not an encoded key")]
    NotEncoded {
        /// The start of the text, up to 64 characters.
        text: String,
    },
}

/// The name of an entry: one or more segments.
///
/// A segment is any text. In the encoded form, letters, digits, `_`, `-` and `.` are literal, every other
/// byte is `%` and two hex digits, and slashes join the segments: untrusted text cannot add a segment,
/// and different segments give different keys. Every store orders keys by the bytes of this form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Creates a key from its segments.
    ///
    /// # Errors
    /// When there is no segment, or the key exceeds [`MAX_KEY_BYTES`].
    pub fn new<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Result<Self, InvalidKey> {
        encode(segments).map(|text| Self(text.into()))
    }

    /// Parses the form that [`Key::as_str`] returns.
    ///
    /// # Errors
    /// When the text is not in that form, or too long.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let segments = text.split(SEPARATOR).map(decode).collect::<Option<Vec<_>>>();
        let key = Self::new(segments.unwrap_or_default());
        match key {
            Ok(key) if key.as_str() == text => Ok(key),
            Err(too_long @ InvalidKey::TooLong { .. }) => Err(too_long),
            _ => Err(InvalidKey::NotEncoded { text: text.chars().take(64).collect() }),
        }
    }

    /// Returns the encoded form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the segments, decoded.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = String> {
        // The text was encoded by this module.
        self.0.split(SEPARATOR).map(|segment| decode(segment).unwrap_or_default())
    }
}

// A key and its encoded form have the same order and hash.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

/// The first segments of keys. `memory/a` is a prefix of `memory/a/x`, but neither of `memory/ab` nor of
/// `memory/a` itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The inclusive start of the range of keys.
    start: Arc<str>,
    /// The exclusive end of the range of keys.
    end: Arc<str>,
}

impl Prefix {
    /// Creates a prefix from its segments.
    ///
    /// # Errors
    /// See [`Key::new`].
    pub fn new<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Result<Self, InvalidKey> {
        encode(segments).map(|text| Self {
            start: format!("{text}{SEPARATOR}").into(),
            end: format!("{text}{AFTER_SEPARATOR}").into(),
        })
    }

    /// Returns whether the key is below the prefix.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        (self.as_str()..self.end()).contains(&key.as_str())
    }

    /// Returns the encoded form, with a trailing slash: the start of the range of keys, and not a key
    /// itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.start
    }

    /// Returns the exclusive lower bound of the page of keys after `after`.
    #[must_use]
    pub fn start_after<'a>(&'a self, after: Option<&'a Key>) -> &'a str {
        after.map_or(self.as_str(), |key| self.as_str().max(key.as_str()))
    }

    /// Returns the exclusive upper bound of the keys below the prefix.
    #[must_use]
    pub fn end(&self) -> &str {
        &self.end
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.start)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({})", self.start)
    }
}

fn encode<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Result<String, InvalidKey> {
    let mut text = String::new();
    for (index, segment) in segments.into_iter().enumerate() {
        if index > 0 {
            text.push(SEPARATOR);
        }
        if segment.as_ref().is_empty() {
            text.push_str(EMPTY);
        }
        for byte in segment.as_ref().bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    match text.len() {
        0 => Err(InvalidKey::Empty),
        bytes if bytes > MAX_KEY_BYTES => Err(InvalidKey::TooLong { bytes }),
        _ => Ok(text),
    }
}

fn decode(segment: &str) -> Option<String> {
    if segment == EMPTY {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(segments: &[&str]) -> Key {
        Key::new(segments).unwrap()
    }

    #[test]
    fn segments_are_escaped() {
        let escaped = key(&["memory", "a/b", "..", "", "%", "ü"]);
        assert_eq!(escaped.as_str(), "memory/a%2Fb/../%/%25/%C3%BC");
        let segments: Vec<_> = escaped.segments().collect();
        assert_eq!(segments, ["memory", "a/b", "..", "", "%", "ü"]);
        assert_ne!(key(&["a", "b"]), key(&["a/b"]));
        assert_ne!(key(&["a", ""]), key(&["a", "%"]));
    }

    #[test]
    fn only_encoded_form_is_parsed() {
        let original = key(&["a b", "c"]);
        assert_eq!(Key::parse(original.as_str()), Ok(original));
        for text in ["", "/", "a//b", "a/", "a b", "%2f", "%41", "%4", "%FF", "a%"] {
            assert!(matches!(Key::parse(text), Err(InvalidKey::NotEncoded { .. })), "{text}");
        }
    }

    #[test]
    fn key_length_is_bounded() {
        assert_eq!(Key::new::<&str>([]), Err(InvalidKey::Empty));
        assert!(Key::new(["x".repeat(512)]).is_ok());
        assert_eq!(Key::new(["x".repeat(513)]), Err(InvalidKey::TooLong { bytes: 513 }));
        assert_eq!(Key::new(["/".repeat(171)]), Err(InvalidKey::TooLong { bytes: 513 }));
    }

    #[test]
    fn prefix_matches_whole_segments() {
        let prefix = Prefix::new(["memory", "a"]).unwrap();
        assert!(prefix.contains(&key(&["memory", "a", "x"])));
        assert!(prefix.contains(&key(&["memory", "a", "x", "y"])));
        for other in [&["memory", "ab"][..], &["memory", "a"], &["memory", "a-b"], &["memory"]] {
            assert!(!prefix.contains(&key(other)), "{other:?}");
        }
    }
}
