//! Where something is kept: segments joined by slashes.

use std::{borrow::Borrow, fmt, sync::Arc};

/// The longest key, in bytes of its encoded form.
pub const MAX_KEY_BYTES: usize = 512;

const SEPARATOR: char = '/';
/// The character after the separator: the range of a prefix ends before it.
const AFTER_SEPARATOR: char = '0';
/// How an empty segment is written; no other text is encoded as a lone percent sign.
const EMPTY: &str = "%";

/// A key that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It has no segment.
    #[error("a key needs at least one segment")]
    Empty,
    /// It is too long.
    #[error(
        "the key has {bytes} bytes when encoded, over the limit of {MAX_KEY_BYTES}; keep a hash of the long part instead"
    )]
    TooLong {
        /// Its length when encoded.
        bytes: usize,
    },
    /// The text is not what [`Key::as_str`] gives.
    #[error("{text:?} is not an encoded key")]
    NotEncoded {
        /// The beginning of the text.
        text: String,
    },
}

/// The name of an entry: one or more segments.
///
/// A segment is any text. In the encoded form letters, digits, `_`, `-` and `.` stand for
/// themselves, every other byte is `%` and two hex digits, and slashes join the segments: so text
/// from outside can't add a segment, and different segments give different keys. Keys are ordered
/// by the bytes of this form, on every store.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of these segments, in order.
    ///
    /// # Errors
    /// Without a segment, and when it gets longer than [`MAX_KEY_BYTES`].
    pub fn new<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Result<Self, InvalidKey> {
        encode(segments).map(|text| Self(text.into()))
    }

    /// Reads a key back from the form that [`Key::as_str`] gives.
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

    /// The encoded form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments as they were given.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = String> {
        // Only encoded text is ever inside.
        self.0.split(SEPARATOR).map(|segment| decode(segment).unwrap_or_default())
    }
}

// Keys and their encoded forms have one order and one hash.
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

/// The first segments of keys. `memory/a` is the prefix of `memory/a/x`, and neither of `memory/ab`
/// nor of `memory/a` itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Keys below the prefix are from here on, ...
    from: Arc<str>,
    /// ... and before this.
    before: Arc<str>,
}

impl Prefix {
    /// The prefix of these segments, in order.
    ///
    /// # Errors
    /// As for [`Key::new`].
    pub fn new<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Result<Self, InvalidKey> {
        encode(segments).map(|text| Self {
            from: format!("{text}{SEPARATOR}").into(),
            before: format!("{text}{AFTER_SEPARATOR}").into(),
        })
    }

    /// Whether the key is below it.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        (self.as_str()..self.end()).contains(&key.as_str())
    }

    /// The encoded form, with a slash at its end; not a key itself. It is the first text in the
    /// range of keys below the prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.from
    }

    /// Returns the lower bound, itself excluded, of the page of keys that follows `after`.
    #[must_use]
    pub fn start_after<'a>(&'a self, after: Option<&'a Key>) -> &'a str {
        after.map_or(self.as_str(), |key| self.as_str().max(key.as_str()))
    }

    /// Returns the upper bound, itself excluded, of the keys below the prefix.
    #[must_use]
    pub fn end(&self) -> &str {
        &self.before
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.from)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({})", self.from)
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
    fn text_from_outside_cannot_add_a_segment() {
        let hostile = key(&["memory", "a/b", "..", "", "%", "ü"]);
        assert_eq!(hostile.as_str(), "memory/a%2Fb/../%/%25/%C3%BC");
        let segments: Vec<_> = hostile.segments().collect();
        assert_eq!(segments, ["memory", "a/b", "..", "", "%", "ü"]);
        assert_ne!(key(&["a", "b"]), key(&["a/b"]));
        assert_ne!(key(&["a", ""]), key(&["a", "%"]));
    }

    #[test]
    fn a_key_is_read_back_from_its_encoded_form_only() {
        let original = key(&["a b", "c"]);
        assert_eq!(Key::parse(original.as_str()), Ok(original));
        for text in ["", "/", "a//b", "a/", "a b", "%2f", "%41", "%4", "%FF", "a%"] {
            assert!(matches!(Key::parse(text), Err(InvalidKey::NotEncoded { .. })), "{text}");
        }
    }

    #[test]
    fn a_key_has_a_segment_and_at_most_512_bytes() {
        assert_eq!(Key::new::<&str>([]), Err(InvalidKey::Empty));
        assert!(Key::new(["x".repeat(512)]).is_ok());
        assert_eq!(Key::new(["x".repeat(513)]), Err(InvalidKey::TooLong { bytes: 513 }));
        assert_eq!(Key::new(["/".repeat(171)]), Err(InvalidKey::TooLong { bytes: 513 }));
    }

    #[test]
    fn a_prefix_holds_whole_segments_only() {
        let prefix = Prefix::new(["memory", "a"]).unwrap();
        assert!(prefix.contains(&key(&["memory", "a", "x"])));
        assert!(prefix.contains(&key(&["memory", "a", "x", "y"])));
        for other in [&["memory", "ab"][..], &["memory", "a"], &["memory", "a-b"], &["memory"]] {
            assert!(!prefix.contains(&key(other)), "{other:?}");
        }
    }
}
