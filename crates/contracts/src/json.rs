//! Limits on external JSON.

/// Maximum nesting of arrays and objects: the limit of the parser, which keeps hostile input from
/// exhausting the stack.
pub const MAX_DEPTH: usize = 127;

/// Size limits of a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size in bytes, checked before parsing. Default 4 MiB.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 4 * 1024 * 1024 }
    }
}

/// Returns whether the parser failed because of [`MAX_DEPTH`].
#[must_use]
pub fn is_too_deep(error: &serde_json::Error) -> bool {
    // The parser exposes this in its message only.
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

/// Maximum length of a parser error, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// Formats a parser error. A long one is cut in the middle, which removes quoted input and keeps the
/// position at the end.
#[must_use]
pub fn describe_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let total = text.chars().count();
    if total <= MAX_ERROR_CHARS {
        return text;
    }
    let head: String = text.chars().take(MAX_ERROR_CHARS / 2).collect();
    let tail: String = text.chars().skip(total - MAX_ERROR_CHARS / 2).collect();
    format!("{head} … {tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn parser_stops_at_the_depth_limit() {
        assert!(serde_json::from_str::<Value>(&nested(MAX_DEPTH)).is_ok());
        for depth in [MAX_DEPTH + 1, 10_000] {
            let error = serde_json::from_str::<Value>(&nested(depth)).unwrap_err();
            assert!(is_too_deep(&error), "{error}");
        }
        let other = serde_json::from_str::<Value>("{").unwrap_err();
        assert!(!is_too_deep(&other));
    }

    #[test]
    fn long_parser_error_is_truncated() {
        let json = format!("\"{}\"", "x".repeat(1_000_000));
        let error = serde_json::from_str::<u32>(&json).unwrap_err();
        let text = describe_error(&error);
        assert!(
            text.chars().count() <= MAX_ERROR_CHARS + 3 && text.contains("expected u32"),
            "{text}"
        );
    }
}
