//! Percent-encoding of values.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Reserved characters that cannot end a value in a path or a query, so that `allowReserved` can keep
/// them. `/`, `?`, `#`, `&` and `+` have a meaning in one of them.
const KEPT_IN_PATH: &[u8] = b":@!$'()*,;=&+";
const KEPT_IN_QUERY: &[u8] = b":@!$'()*,;=/?";

/// Characters of a path template that are kept, besides unreserved ones.
const KEPT_IN_TEMPLATE: &[u8] = b":@!$'()*,;=&+/";
/// Characters of a fixed query that are kept, besides unreserved ones.
const KEPT_IN_FIXED_QUERY: &[u8] = b":@!$'()*,;=&+/?[]";

/// The part of a URL or request that a value becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Part of a path segment.
    Path,
    /// Name or value in a query, or in a form.
    Query,
    /// The text is used as it is: in headers.
    Raw,
}

/// Encodes a value. `reserved` keeps reserved characters that do not end the value, and triplets that
/// are encoded already.
pub(super) fn encode(text: &str, target: Target, reserved: bool) -> String {
    match target {
        Target::Raw => text.to_owned(),
        Target::Path if reserved => keep(text, KEPT_IN_PATH),
        Target::Query if reserved => keep(text, KEPT_IN_QUERY),
        Target::Path | Target::Query => utf8_percent_encode(text, RESERVED).to_string(),
    }
}

/// Encodes the fixed text of a path template.
pub(super) fn encode_template(text: &str) -> String {
    keep(text, KEPT_IN_TEMPLATE)
}

/// Encodes the query that a path template ends in.
pub(super) fn encode_fixed_query(text: &str) -> String {
    keep(text, KEPT_IN_FIXED_QUERY)
}

fn keep(text: &str, kept: &[u8]) -> String {
    let bytes = text.as_bytes();
    let mut encoded = String::with_capacity(text.len());
    for (index, &byte) in bytes.iter().enumerate() {
        let hex = |offset: usize| bytes.get(index + offset).is_some_and(u8::is_ascii_hexdigit);
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || kept.contains(&byte) || (byte == b'%' && hex(1) && hex(2)) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Returns whether a path segment means the same or the parent folder to a URL parser.
pub(super) fn is_dot_segment(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_unreserved_characters_only() {
        assert_eq!(encode("a-b._~/?#&é%41", Target::Query, false), "a-b._~%2F%3F%23%26%C3%A9%2541");
        assert_eq!(encode("a/b c", Target::Raw, true), "a/b c");
    }

    #[test]
    fn reserved_values_cannot_end_their_place() {
        assert_eq!(encode("a/b?c#d&e+f=%41%", Target::Query, true), "a/b?c%23d%26e%2Bf=%41%25");
        assert_eq!(encode("a/b?c#d&e", Target::Path, true), "a%2Fb%3Fc%23d&e");
    }

    #[test]
    fn encoded_dots_are_dot_segments() {
        assert!(["..", ".", "%2e%2E", ".%2e"].into_iter().all(is_dot_segment));
        assert!(!is_dot_segment("..."));
    }
}
