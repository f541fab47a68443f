//! The decoder: chunks of a body in, events out.

#[cfg(test)]
mod tests;

use std::{mem, time::Duration};

use bytes::{Buf, Bytes};

use crate::event::{Event, EventData};

/// The length of the data prefix of an event that exceeds the limit, in bytes.
pub const PREFIX_BYTES: usize = 64 * 1024;
/// The largest `event`, `id` or `retry` value, in bytes; a larger one is ignored.
pub const MAX_FIELD_BYTES: usize = 4096;

/// A line without data that is longer than this and than the data limit is skipped, in bytes.
const MAX_LINE_BYTES: usize = 2 * MAX_FIELD_BYTES;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Decodes events from chunks that end anywhere.
///
/// Lines end with CR, LF or CRLF. An event whose data exceeds the limit is returned as soon as the
/// limit is passed, even if the event never ends; the rest of it is skipped. Other lines that are too
/// long, such as comments, are skipped. An event that the end of the body cuts off is not returned.
///
/// It buffers at most twice the data limit, 64 KiB and one chunk.
#[derive(Debug)]
pub struct EventDecoder {
    max_data_bytes: usize,
    data_alias: Option<&'static [u8]>,
    /// The line that is being received.
    line: Vec<u8>,
    /// The event that is being received.
    event: Event,
    /// The event has a `data` field, possibly an empty one.
    has_data: bool,
    /// The event has fields, so that an empty line dispatches it.
    has_fields: bool,
    /// The rest of the current line is skipped.
    skip_line: bool,
    /// The current event was returned as too large; the rest of it is skipped.
    skip_event: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_carriage_return: bool,
    /// A line has ended, so a byte order mark is no longer expected.
    past_first_line: bool,
}

impl EventDecoder {
    /// Creates a decoder for events of up to `max_data_bytes` of data.
    #[must_use]
    pub fn new(max_data_bytes: usize) -> Self {
        Self {
            max_data_bytes,
            data_alias: None,
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            has_fields: false,
            skip_line: false,
            skip_event: false,
            after_carriage_return: false,
            past_first_line: false,
        }
    }

    /// Treats the field `name` like `data`, for servers that name their failures by a field.
    #[must_use]
    pub fn with_data_alias(mut self, name: &'static str) -> Self {
        self.data_alias = Some(name.as_bytes());
        self
    }

    /// Consumes `chunk` up to the end of the next event, and returns that event.
    ///
    /// Returns `None` when the chunk is used up.
    pub fn decode(&mut self, chunk: &mut Bytes) -> Option<Event> {
        while !chunk.is_empty() {
            if mem::take(&mut self.after_carriage_return) && chunk[0] == b'\n' {
                chunk.advance(1);
                continue;
            }
            let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = chunk.split_to(end.unwrap_or(chunk.len()));
            let mut event = self.extend_line(&part);
            if end.is_some() {
                self.after_carriage_return = chunk[0] == b'\r';
                chunk.advance(1);
                // Also when the line was reported as too large: its end must not be lost.
                let ended = self.end_line();
                event = event.or(ended);
            }
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Buffers a part of a line. Returns the event if the line makes it too large.
    fn extend_line(&mut self, part: &[u8]) -> Option<Event> {
        if self.skip_line || part.is_empty() {
            return None;
        }
        if self.skip_event {
            // Only its emptiness counts, to find the end of the event.
            self.line = vec![part[0]];
            return None;
        }
        self.line.extend_from_slice(part);
        if self.line.len() <= self.max_data_bytes {
            return None;
        }
        match self.data_value(self.without_byte_order_mark(&self.line)) {
            Some(value) if value.len() <= self.max_data_bytes => return None,
            None if self.line.len() <= MAX_LINE_BYTES => return None,
            _ => {}
        }
        let line = mem::take(&mut self.line);
        self.skip_line = true;
        let value = self.data_value(self.without_byte_order_mark(&line))?;
        self.append_data(value)
    }

    fn end_line(&mut self) -> Option<Event> {
        let mut line = mem::take(&mut self.line);
        let event = if mem::take(&mut self.skip_line) { None } else { self.read_line(&line) };
        line.clear();
        self.line = line;
        self.past_first_line = true;
        event
    }

    fn read_line(&mut self, line: &[u8]) -> Option<Event> {
        let line = self.without_byte_order_mark(line);
        if line.is_empty() {
            return self.dispatch();
        }
        if self.skip_event {
            return None;
        }
        if let Some(value) = self.data_value(line) {
            return self.append_data(value);
        }
        self.read_field(line);
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        let event = mem::take(&mut self.event);
        let complete = mem::take(&mut self.has_fields);
        self.has_data = false;
        (complete && !mem::take(&mut self.skip_event)).then_some(event)
    }

    fn read_field(&mut self, line: &[u8]) {
        let text = |field: &str| {
            let value = field_value(line, field.as_bytes())?;
            let text = std::str::from_utf8(value).ok()?;
            (text.len() <= MAX_FIELD_BYTES).then_some(text)
        };
        if let Some(name) = text("event") {
            self.event.name = Some(name.to_owned());
        } else if let Some(id) = text("id").filter(|id| !id.contains('\0')) {
            self.event.id = Some(id.to_owned());
        } else if let Some(millis) = text("retry").and_then(parse_millis) {
            self.event.retry = Some(Duration::from_millis(millis));
        } else {
            return;
        }
        self.has_fields = true;
    }

    /// Appends a line of data. Returns the event if that makes its data too large.
    fn append_data(&mut self, line: &[u8]) -> Option<Event> {
        let EventData::Complete(data) = &mut self.event.data else { return None };
        if mem::replace(&mut self.has_data, true) {
            data.push(b'\n');
        }
        self.has_fields = true;
        if data.len() + line.len() <= self.max_data_bytes {
            data.extend_from_slice(line);
            return None;
        }
        let mut prefix = mem::take(data);
        prefix.truncate(PREFIX_BYTES);
        prefix.extend_from_slice(&line[..line.len().min(PREFIX_BYTES - prefix.len())]);
        self.skip_event = true;
        Some(Event { data: EventData::TooLarge(prefix), ..mem::take(&mut self.event) })
    }

    fn data_value<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        field_value(line, b"data").or_else(|| field_value(line, self.data_alias?))
    }

    fn without_byte_order_mark<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if !self.past_first_line => rest,
            _ => line,
        }
    }
}

/// Returns the value of a line if it belongs to `field`.
fn field_value<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(field)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Parses a reconnection time, which consists of ASCII digits only: no sign.
fn parse_millis(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
