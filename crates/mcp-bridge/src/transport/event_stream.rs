//! Server-sent events of a server that may send anything.
//!
//! An event whose data is too large is told of as soon as that is known, so that whoever waits for
//! it learns it even if the event never ends; the rest of it is read away.

use std::time::Duration;

use bytes::{Buf, Bytes};

use super::failure::ConnectError;
use crate::frame::{LOOK_BYTES, MAX_FRAME_BYTES, Unreadable};

/// The longest pause that a server can ask for before the stream is opened again.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// What is kept of a name or an id.
const MAX_NAME_BYTES: usize = 4096;
/// A line's field name, colon and space come on top of the data.
const MAX_LINE_BYTES: usize = MAX_FRAME_BYTES + LOOK_BYTES;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    pub name: Option<String>,
    pub id: Option<String>,
    pub retry: Option<Duration>,
    pub data: Data,
}

/// The data of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Data {
    Whole(Vec<u8>),
    /// How data began that has more than [`MAX_FRAME_BYTES`].
    TooLarge(Vec<u8>),
}

impl Default for Data {
    fn default() -> Self {
        Self::Whole(Vec::new())
    }
}

impl Event {
    /// Whether it is a message of the protocol, and not for the transport itself.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.name.as_deref(), None | Some("" | "message"))
    }

    /// Whether it carries nothing, as an event that only keeps the stream open or gives it an id.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.data, Data::Whole(data) if data.trim_ascii().is_empty())
    }

    /// What it says, or how that began and why it can't be read.
    pub(crate) fn text(&self) -> Result<&str, (&[u8], Unreadable)> {
        match &self.data {
            Data::Whole(data) => {
                std::str::from_utf8(data).map_err(|_| (data.as_slice(), Unreadable::Garbage))
            }
            Data::TooLarge(beginning) => Err((beginning, Unreadable::TooLarge)),
        }
    }
}

/// The events of an answer.
pub(crate) struct EventStream {
    response: reqwest::Response,
    chunk: Bytes,
    parser: Parser,
}

impl EventStream {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self { response, chunk: Bytes::new(), parser: Parser::default() }
    }

    /// The next event; none when the stream has ended. What was begun then is dropped.
    ///
    /// Cancel-safe: nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// When the connection breaks or says nothing for too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, ConnectError> {
        loop {
            if let Some(event) = self.parser.take(&mut self.chunk) {
                return Ok(Some(event));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(None),
            }
        }
    }
}

#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    event: Event,
    /// Something was said that an empty line completes.
    begun: bool,
    /// The line is longer than anything that is kept.
    overlong: bool,
    /// The event was told of already; its rest is read away.
    told: bool,
    /// A line feed now belongs to the carriage return before it.
    after_return: bool,
}

impl Parser {
    /// Reads on until an event is complete or the chunk is used up.
    fn take(&mut self, chunk: &mut Bytes) -> Option<Event> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return) && chunk[0] == b'\n' {
                chunk.advance(1);
                continue;
            }
            let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = chunk.split_to(end.unwrap_or(chunk.len()));
            let mut event = self.lengthen(&part);
            if end.is_some() {
                self.after_return = chunk[0] == b'\r';
                chunk.advance(1);
                event = event.or_else(|| self.end_line());
            }
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn lengthen(&mut self, part: &[u8]) -> Option<Event> {
        if self.overlong || self.told && self.line.len() + part.len() > LOOK_BYTES {
            self.overlong = true;
            return None;
        }
        self.line.extend_from_slice(part);
        if self.line.len() <= MAX_LINE_BYTES {
            return None;
        }
        self.overlong = true;
        let value = value_of(&self.line, b"data")?.to_vec();
        self.add_data(&value)
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.overlong) || self.told && !line.is_empty() {
            return None;
        }
        if line.is_empty() {
            let (event, begun) = (std::mem::take(&mut self.event), std::mem::take(&mut self.begun));
            return (begun && !std::mem::take(&mut self.told)).then_some(event);
        }
        if let Some(data) = value_of(&line, b"data") {
            return self.add_data(data);
        }
        let named = |field: &[u8]| {
            let value = value_of(&line, field).filter(|value| value.len() <= MAX_NAME_BYTES)?;
            String::from_utf8(value.to_vec()).ok()
        };
        if let Some(name) = named(b"event") {
            self.event.name = Some(name);
            self.begun = true;
        } else if let Some(id) = named(b"id").filter(|id| !id.contains('\0')) {
            self.event.id = Some(id);
            self.begun = true;
        } else if let Some(millis) = named(b"retry").and_then(|text| text.parse().ok()) {
            self.event.retry = Some(Duration::from_millis(millis).min(LONGEST_RETRY));
            self.begun = true;
        }
        None
    }

    /// Adds a line of data, and tells of the event at once if that makes it too large.
    fn add_data(&mut self, line: &[u8]) -> Option<Event> {
        let Data::Whole(data) = &mut self.event.data else { return None };
        if !data.is_empty() {
            data.push(b'\n');
        }
        data.extend_from_slice(line);
        self.begun = true;
        if data.len() <= MAX_FRAME_BYTES {
            return None;
        }
        let beginning = data[..LOOK_BYTES].to_vec();
        self.told = true;
        let event = std::mem::take(&mut self.event);
        Some(Event { data: Data::TooLarge(beginning), ..event })
    }
}

/// The value of a line, if it is about this field.
fn value_of<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(field)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&str], expected: &[(&str, &str, &str)]) {
        let got: Vec<_> = events(chunks.iter().map(|chunk| chunk.as_bytes().to_vec()))
            .into_iter()
            .map(|event| {
                let text = event.text().expect("readable").to_owned();
                (event.name.unwrap_or_default(), event.id.unwrap_or_default(), text)
            })
            .collect();
        let got: Vec<_> = got.iter().map(|(a, b, c)| (&a[..], &b[..], &c[..])).collect();
        assert_eq!(got, expected, "{chunks:?}");
    }

    fn events(chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            let mut chunk = Bytes::from(chunk);
            while let Some(event) = parser.take(&mut chunk) {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn events_are_read_however_they_are_written() {
        check(&["data: a\n\n"], &[("", "", "a")]);
        check(
            &["data:a\r\n\r\ndata: b\r\rdata:c\n\n"],
            &[("", "", "a"), ("", "", "b"), ("", "", "c")],
        );
        check(&["data: a\ndata: b\n\n"], &[("", "", "a\nb")]);
        check(&["event: endpoint\nid: 7\ndata: /x\n\n"], &[("endpoint", "7", "/x")]);
        check(&[": a comment\n\n:\n\nunknown: x\n\n"], &[]);
        check(
            &["da", "ta: a\r", "\n", "\r", "\n", "data: b\n", "\n"],
            &[("", "", "a"), ("", "", "b")],
        );
        check(&["id: 1\ndata\n\n"], &[("", "1", "")]);
        check(&["data: half a fra"], &[]);
        check(&["database: x\ndata: y\n\n"], &[("", "", "y")]);
    }

    #[test]
    fn a_pause_that_a_server_asks_for_has_a_bound() {
        let events = events([b"retry: 99999999999\ndata: a\n\n".to_vec()]);
        assert_eq!(events[0].retry, Some(LONGEST_RETRY));
    }

    #[test]
    fn an_event_that_never_ends_is_told_of_and_the_next_ones_are_read() {
        let piece = vec![b'x'; 1 << 20];
        let mut chunks = vec![b"data: {\"id\":7,".to_vec()];
        chunks.extend(std::iter::repeat_n(piece, 40));
        chunks.push(b"\ndata: more of it\n\ndata: next\n\n".to_vec());
        let events = events(chunks);
        let told = events[0].text().expect_err("too large");
        assert_eq!((&told.0[..8], told.1), (&b"{\"id\":7,"[..], Unreadable::TooLarge));
        assert_eq!(events[1].text(), Ok("next"));
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn many_small_lines_are_bounded_like_a_long_one() {
        let line = [b"data: ".to_vec(), vec![b'x'; 60_000], b"\n".to_vec()].concat();
        let mut chunks = vec![line; 300];
        chunks.push(b"\ndata: next\n\n".to_vec());
        let events = events(chunks);
        assert!(matches!(events[0].data, Data::TooLarge(_)));
        assert_eq!(events[1].text(), Ok("next"));
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn a_comment_that_never_ends_is_no_event() {
        let chunks = std::iter::repeat_n(vec![b':'; 1 << 20], 40);
        let events = events(chunks.chain([b"\ndata: next\n\n".to_vec()]));
        assert_eq!(events.len(), 1);
    }
}
