//! Encoding of arbitrary text as segments of routing keys.

/// Encodes external text as one segment of a routing key.
///
/// Letters, digits, `_` and `-` stay; every other byte becomes `%` and two hex digits, so different
/// texts give different segments. A segment over 64 bytes is cut and ends in a hash of the whole text.
#[must_use]
pub fn key_segment(text: &str) -> String {
    const MAX_SEGMENT_BYTES: usize = 64;
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    if segment.len() > MAX_SEGMENT_BYTES {
        segment.truncate(MAX_SEGMENT_BYTES - 17);
        segment.push_str(&format!("~{:016x}", stable_hash(text.as_bytes())));
    }
    segment
}

/// Returns the 64-bit FNV-1a hash, equal on every build and machine, unlike the standard hasher. For
/// names and fingerprints; not collision-resistant.
#[must_use]
pub fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::RoutingKey;

    #[test]
    fn external_text_stays_in_its_segment() {
        for text in ["a.b", "a*#", "ü", "", " ", &"x".repeat(1000), &"é".repeat(500)] {
            let segment = key_segment(text);
            assert!(segment.len() <= 64 && !segment.contains(['.', '*', '#', ' ']), "{segment}");
            RoutingKey::new(format!("tool.result.{segment}.{segment}")).unwrap();
        }
        assert_ne!(key_segment(&"x".repeat(1000)), key_segment(&"x".repeat(1001)));
        assert_ne!(key_segment("a.b"), key_segment("a%2Eb"));
    }
}
