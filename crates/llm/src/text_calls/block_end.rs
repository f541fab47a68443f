//! The end of a block of calls whose content arrives in pieces.

use crate::json_depth::JsonDepth;

/// The search for the closing mark of a block. A mark within a JSON value is a part of the value, such as a
/// text that the model copied from a page: it does not end the block.
#[derive(Debug, Default)]
pub(super) struct BlockEnd {
    content: Content,
    /// Bytes of the content that were read.
    read: usize,
    depth: JsonDepth,
}

/// The notation of a block.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Content {
    #[default]
    Unknown,
    /// Between two JSON values.
    Json,
    /// In a JSON value.
    JsonValue,
    /// Tags: nothing is escaped, so the first mark ends the block.
    Tags,
}

impl BlockEnd {
    /// Returns the position and the length of the closing mark, or `None` if it has not arrived. `content` is
    /// the whole content of the block so far.
    pub(super) fn find(&mut self, content: &str, close: &[&str]) -> Option<(usize, usize)> {
        loop {
            if self.content == Content::JsonValue {
                let Some(end) = self.depth.read(&content[self.read..]) else {
                    self.read = content.len();
                    return None;
                };
                self.read += end;
                self.content = Content::Json;
            }
            let rest = &content[self.read..];
            let found = close.iter().filter_map(|mark| Some((rest.find(mark)?, mark.len()))).min();
            let end = found.map(|(at, length)| (self.read + at, length));
            let start = match self.content {
                Content::Tags => None,
                _ => self.next_start(rest),
            };
            match (found, start) {
                (Some((at, _)), Some((start, _))) if at <= start => return end,
                (Some(_), None) => return end,
                (_, Some((start, next))) => {
                    self.content = next;
                    self.read += start;
                    self.depth = JsonDepth::default();
                }
                (None, None) => {
                    // A mark may have arrived in part.
                    let longest = close.iter().map(|mark| mark.len()).max().unwrap_or_default();
                    let read = content.len().saturating_sub(longest).max(self.read);
                    self.read = content.floor_char_boundary(read).max(self.read);
                    return None;
                }
            }
        }
    }

    /// Returns whether the content has tags, in which a cut value looks complete.
    pub(super) fn has_tags(&self) -> bool {
        !matches!(self.content, Content::Json | Content::JsonValue)
    }

    /// Returns the first byte that shows the notation, or begins the next value.
    fn next_start(&self, rest: &str) -> Option<(usize, Content)> {
        let bytes = rest.as_bytes();
        bytes.iter().enumerate().find_map(|(at, byte)| match byte {
            b'{' | b'[' => Some((at, Content::JsonValue)),
            b'<' if self.content == Content::Unknown => {
                let is_tag = bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic);
                is_tag.then_some((at, Content::Tags))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSE: &[&str] = &["</call>"];

    /// Returns the content up to the mark, however it is cut into pieces.
    fn content(text: &str) -> Option<&str> {
        let whole = BlockEnd::default().find(text, CLOSE);
        let mut end = BlockEnd::default();
        let positions = text.char_indices().map(|(at, _)| at).skip(1).chain([text.len()]);
        let pieces = positions.filter_map(|at| end.find(&text[..at], CLOSE)).next();
        assert_eq!(pieces, whole, "{text}");
        whole.map(|(at, _)| &text[..at])
    }

    #[test]
    fn mark_in_json_does_not_end_the_block() {
        let value = r#"{"name": "write", "arguments": {"text": "a</call><b>\"}"}}"#;
        assert_eq!(content(&format!("{value}</call>")), Some(value));
        let two = format!("name{value}\n name{value}");
        assert_eq!(content(&format!("{two}</call> text")), Some(two.as_str()));
        assert_eq!(content(&format!("[{value}")), None);
    }

    #[test]
    fn first_mark_ends_tags_and_names() {
        assert_eq!(content("f><p=a>{\"</call>\"}</call>"), Some("f><p=a>{\""));
        assert_eq!(content("now</call>{"), Some("now"));
        assert_eq!(content("</call>"), Some(""));
        assert_eq!(content("now</cal"), None);
    }
}
