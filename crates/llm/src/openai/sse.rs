//! Server-sent events out of a body's bytes, with a bound on everything that waits.

use std::{collections::VecDeque, str};

use crate::error::ChatError;

/// The longest line and the longest event, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Collects the data of events from chunks that end anywhere.
///
/// Lines are decoded as UTF-8 only when whole, so a character may be split between chunks. An
/// event that the body's end cuts off is never given out.
#[derive(Debug, Default)]
pub(super) struct EventDecoder {
    line: Vec<u8>,
    data: String,
    has_data: bool,
    past_first_line: bool,
    ready: VecDeque<String>,
}

impl EventDecoder {
    /// Takes the next chunk of the body.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), ChatError> {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > MAX_EVENT_BYTES {
                return Err(too_large());
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(())
    }

    /// The data of the next complete event.
    pub(super) fn pop(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) -> Result<(), ChatError> {
        let mut line = std::mem::take(&mut self.line);
        let result = self.read_line(&line);
        line.clear();
        self.line = line;
        self.past_first_line = true;
        result
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), ChatError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if !self.past_first_line => rest,
            _ => line,
        };
        if line.is_empty() {
            self.has_data = false;
            let data = std::mem::take(&mut self.data);
            if !data.is_empty() {
                self.ready.push_back(data);
            }
            return Ok(());
        }
        let line = str::from_utf8(line)
            .map_err(|_| ChatError::malformed("the event stream is not UTF-8"))?;
        // Comments are keep-alives. `error` is what older llama.cpp servers name a failure.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field != "data" && field != "error" {
            return Ok(());
        }
        let value = value.strip_prefix(' ').unwrap_or(value);
        if self.data.len() + value.len() >= MAX_EVENT_BYTES {
            return Err(too_large());
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push('\n');
        }
        self.data.push_str(value);
        Ok(())
    }
}

fn too_large() -> ChatError {
    ChatError::TooLarge { what: "bytes in one event of the stream", limit: MAX_EVENT_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<String>, ChatError> {
        let mut decoder = EventDecoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk)?;
            events.extend(std::iter::from_fn(|| decoder.pop()));
        }
        Ok(events)
    }

    #[test]
    fn events_are_the_same_wherever_the_chunks_end() {
        let body = "data: grüße 🐰\r\n\r\n: OPENROUTER PROCESSING\n\nid: 7\ndata:b\ndata: c\n\n";
        for size in 1..body.len() {
            let chunks: Vec<_> = body.as_bytes().chunks(size).collect();
            assert_eq!(decode(&chunks).unwrap(), ["grüße 🐰", "b\nc"], "chunks of {size}");
        }
    }

    #[test]
    fn an_event_cut_by_the_end_is_not_given_out() {
        assert_eq!(decode(&[b"data: a\n\ndata: {\"half\":"]).unwrap(), ["a"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_only_at_the_start() {
        assert_eq!(decode(&[b"\xEF\xBB", b"\xBFdata: a\n\n"]).unwrap(), ["a"]);
        assert!(decode(&[b"\n\xEF\xBB\xBFdata: a\n\n"]).unwrap().is_empty());
    }

    #[test]
    fn a_failure_named_by_its_field_is_data_and_empty_events_are_none() {
        assert_eq!(decode(&[b"data:\n\nerror: {\"code\":500}\n\n"]).unwrap(), ["{\"code\":500}"]);
    }

    #[test]
    fn bytes_that_are_not_text_are_refused() {
        assert!(matches!(decode(&[b"data: \xFF\xFE\n"]), Err(ChatError::Malformed { .. })));
    }

    #[test]
    fn endless_lines_and_endless_events_are_refused() {
        let chunk = vec![b'x'; 64 * 1024];
        let line = vec![chunk.as_slice(); 17];
        assert!(matches!(decode(&line), Err(ChatError::TooLarge { .. })));

        let chunk = [b"data: ", chunk.as_slice(), b"\n"].concat();
        let event = vec![chunk.as_slice(); 17];
        assert!(matches!(decode(&event), Err(ChatError::TooLarge { .. })));
    }

    #[test]
    fn keep_alives_without_end_fill_nothing() {
        let comment = [b": ".as_slice(), &[b'x'; 1024], b"\n"].concat();
        let body = vec![comment.as_slice(); 2048];
        assert!(decode(&body).unwrap().is_empty());
    }
}
