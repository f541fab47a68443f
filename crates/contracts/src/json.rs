//! Limits on JSON from outside, checked before a parser sees it.

/// How large and how deep a JSON text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size in bytes. Default 4 MiB.
    pub bytes: usize,
    /// Levels of nested arrays and objects. Default 64, under the parser's own limit of 128.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 4 * 1024 * 1024, depth: 64 }
    }
}

/// Whether `text` opens more than `limit` arrays and objects inside each other.
///
/// One pass, no allocation; brackets in strings don't count. It judges only depth: whether the
/// text is JSON at all is the parser's to say.
#[must_use]
pub fn deeper_than(text: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                // Skip the string, escapes included.
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => {
                            bytes.next();
                        }
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_brackets_outside_strings_only() {
        assert!(!deeper_than(br#"{"a":[1,[2]]}"#, 3));
        assert!(deeper_than(br#"{"a":[1,[2]]}"#, 2));
        assert!(!deeper_than(br#"{"a":"[[[[\"[["}"#, 1));
        assert!(deeper_than("[".repeat(10_000).as_bytes(), 64));
        assert!(!deeper_than("[]".repeat(10_000).as_bytes(), 1));
    }
}
