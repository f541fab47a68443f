//! Bounded buffers for the output of a running script, and bounded parts of it.

use std::collections::VecDeque;

/// The first bytes of a stream, up to a limit.
#[derive(Debug)]
pub(crate) struct HeadBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl HeadBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Appends what fits. Returns `false` if bytes were dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let capacity = self.limit - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(capacity)]);
        bytes.len() <= capacity
    }

    /// Returns the text without an incomplete character at the limit.
    pub(crate) fn into_text(self) -> String {
        let length = complete_length(&self.bytes, self.bytes.len() == self.limit);
        String::from_utf8_lossy(&self.bytes[..length]).into_owned()
    }
}

/// Returns the length without an incomplete character at the end, if the bytes may have been cut.
pub(crate) fn complete_length(bytes: &[u8], cut: bool) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if cut && error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// The last bytes of a stream, up to a limit.
#[derive(Debug)]
pub(crate) struct TailBuffer {
    bytes: VecDeque<u8>,
    limit: usize,
    cut: bool,
}

impl TailBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit, cut: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.cut |= surplus > 0 || kept.len() < bytes.len();
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
    }

    /// Returns the text without an incomplete character at the start.
    pub(crate) fn into_text(mut self) -> String {
        let bytes = self.bytes.make_contiguous();
        let continues = |byte: &&u8| **byte & 0xC0 == 0x80;
        let half = if self.cut { bytes.iter().take(3).take_while(continues).count() } else { 0 };
        String::from_utf8_lossy(&bytes[half..]).into_owned()
    }
}

/// Returns the end of a text, at most `max_bytes` long.
pub(crate) fn end_of(text: &str, max_bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max_bytes))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_ends_at_character_boundary() {
        let mut head = HeadBuffer::new(5);
        assert!(head.push("aé".as_bytes()));
        assert!(!head.push("€".as_bytes()));
        assert_eq!(head.into_text(), "aé");
        let mut broken = HeadBuffer::new(9);
        assert!(broken.push(b"a\xff"));
        assert_eq!(broken.into_text(), "a\u{fffd}");
    }

    #[test]
    fn tail_starts_at_character_boundary() {
        let mut tail = TailBuffer::new(4);
        for part in ["abc", "d€", "ef"] {
            tail.push(part.as_bytes());
        }
        assert_eq!(tail.into_text(), "ef");
        let mut whole = TailBuffer::new(4);
        whole.push("x€".as_bytes());
        assert_eq!(whole.into_text(), "x€");
        let mut large = TailBuffer::new(2);
        large.push(b"0123456789");
        assert_eq!(large.into_text(), "89");
    }
}
