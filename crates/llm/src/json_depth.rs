//! Detection of the end of a JSON value that arrives in pieces.

/// The nesting depth in a JSON object or array, tracked piece by piece: parsing the whole text again for
/// each piece would take quadratic time.
#[derive(Debug, Default)]
pub(crate) struct JsonDepth {
    depth: usize,
    in_string: bool,
    escaped: bool,
    opened: bool,
}

impl JsonDepth {
    /// Reads the next piece. Stops at the byte that closes the value, and returns the position after it.
    pub(crate) fn read(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            self.read_byte(byte);
            if self.is_closed() {
                return Some(at + 1);
            }
        }
        None
    }

    fn read_byte(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => {
                self.opened = true;
                self.depth += 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns `true` if the value is complete.
    pub(crate) fn is_closed(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_found_outside_of_strings() {
        let text = r#" {"a":["}]\"",{}]} rest"#;
        assert_eq!(JsonDepth::default().read(text), Some(text.len() - 5));
        let mut depth = JsonDepth::default();
        for (at, _) in text[..text.len() - 5].char_indices() {
            assert!(!depth.is_closed());
            depth.read(&text[at..=at]);
        }
        assert!(depth.is_closed());
    }
}
