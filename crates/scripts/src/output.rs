//! What a script prints, with bounds that hold while it prints.

use std::collections::VecDeque;

/// The beginning of a stream.
#[derive(Debug)]
pub(crate) struct Beginning {
    bytes: Vec<u8>,
    limit: usize,
}

impl Beginning {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Takes what fits; `false` when that was not all.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let room = self.limit - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        bytes.len() <= room
    }

    /// As text, without the half of a character that the limit may have left.
    pub(crate) fn into_text(self) -> String {
        let whole = whole_characters(&self.bytes, self.bytes.len() == self.limit);
        String::from_utf8_lossy(&self.bytes[..whole]).into_owned()
    }
}

/// Up to where bytes hold whole characters, if they may have been cut.
fn whole_characters(bytes: &[u8], cut: bool) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if cut && error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// The end of a stream.
#[derive(Debug)]
pub(crate) struct End {
    bytes: VecDeque<u8>,
    limit: usize,
    cut: bool,
}

impl End {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit, cut: false }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.cut |= surplus > 0 || kept.len() < bytes.len();
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
    }

    /// As text, from a whole character on.
    pub(crate) fn into_text(mut self) -> String {
        let bytes = self.bytes.make_contiguous();
        let continues = |byte: &&u8| **byte & 0xC0 == 0x80;
        let half = if self.cut { bytes.iter().take(3).take_while(continues).count() } else { 0 };
        String::from_utf8_lossy(&bytes[half..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_ends_with_a_whole_character() {
        let mut beginning = Beginning::new(5);
        assert!(beginning.take("aé".as_bytes()));
        assert!(!beginning.take("€".as_bytes()));
        assert_eq!(beginning.into_text(), "aé");
        let mut broken = Beginning::new(9);
        assert!(broken.take(b"a\xff"));
        assert_eq!(broken.into_text(), "a\u{fffd}");
    }

    #[test]
    fn an_end_begins_with_a_whole_character() {
        let mut end = End::new(4);
        for part in ["abc", "d€", "ef"] {
            end.take(part.as_bytes());
        }
        assert_eq!(end.into_text(), "ef");
        let mut whole = End::new(4);
        whole.take("x€".as_bytes());
        assert_eq!(whole.into_text(), "x€");
        let mut large = End::new(2);
        large.take(b"0123456789");
        assert_eq!(large.into_text(), "89");
    }
}
