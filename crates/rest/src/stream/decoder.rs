//! Separation of the messages of a stream.

use bytes::{Buf, Bytes};
use rockbot_sse::{EventData, EventDecoder};

use super::config::{StreamConfig, StreamMode};

/// Maximum length of a message, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// A message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Text(String),
    /// It exceeds [`MAX_MESSAGE_BYTES`].
    TooLong,
}

/// Separates messages in chunks that end anywhere. Buffers at most one message.
#[derive(Debug)]
pub(super) enum Decoder {
    Lines { line: Vec<u8>, prefix: String },
    Events(Box<EventDecoder>),
}

impl Decoder {
    pub(super) fn new(config: &StreamConfig) -> Self {
        let prefix = match config.mode {
            StreamMode::Sse => {
                return Self::Events(Box::new(EventDecoder::new(MAX_MESSAGE_BYTES)));
            }
            StreamMode::Ndjson => String::new(),
            StreamMode::JsonStream => config.line_prefix.clone().unwrap_or_default(),
        };
        Self::Lines { line: Vec::new(), prefix }
    }

    /// Consumes `chunk` up to the end of the next message, and returns that message.
    pub(super) fn next(&mut self, chunk: &mut Bytes) -> Option<Message> {
        match self {
            Self::Events(decoder) => loop {
                match decoder.decode(chunk)?.data {
                    EventData::TooLarge(_) => return Some(Message::TooLong),
                    EventData::Complete(data) => {
                        if let Some(message) = message(&data, "") {
                            return Some(message);
                        }
                    }
                }
            },
            Self::Lines { line, prefix } => {
                while !chunk.is_empty() {
                    let end = chunk.iter().position(|byte| *byte == b'\n');
                    line.extend_from_slice(&chunk.split_to(end.unwrap_or(chunk.len())));
                    if line.len() > MAX_MESSAGE_BYTES {
                        return Some(Message::TooLong);
                    }
                    if end.is_some() {
                        chunk.advance(1);
                        let message = message(&std::mem::take(line), prefix);
                        if message.is_some() {
                            return message;
                        }
                    }
                }
                None
            }
        }
    }

    /// Returns the last line, which needs no line break. An incomplete event is dropped, as the format of
    /// events requires.
    pub(super) fn finish(self) -> Option<Message> {
        match self {
            Self::Events(_) => None,
            Self::Lines { line, prefix } => message(&line, &prefix),
        }
    }
}

/// Returns the message of a line or event; `None` if it is blank or has another prefix.
fn message(text: &[u8], prefix: &str) -> Option<Message> {
    let text = text.trim_ascii().strip_prefix(prefix.as_bytes())?.trim_ascii();
    (!text.is_empty()).then(|| Message::Text(String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a stream in chunks of every size.
    #[track_caller]
    fn check(mode: StreamMode, prefix: Option<&str>, stream: &str, expected: &[&str]) {
        let config = StreamConfig {
            mode,
            line_prefix: prefix.map(str::to_owned),
            ..StreamConfig::default()
        };
        for size in 1..=stream.len() {
            let mut decoder = Decoder::new(&config);
            let mut messages = Vec::new();
            for part in stream.as_bytes().chunks(size) {
                let mut chunk = Bytes::copy_from_slice(part);
                while let Some(message) = decoder.next(&mut chunk) {
                    messages.push(message);
                }
            }
            messages.extend(decoder.finish());
            let expected = expected.iter().map(|text| Message::Text((*text).to_owned()));
            assert_eq!(messages, expected.collect::<Vec<_>>(), "chunks of {size}");
        }
    }

    #[test]
    fn messages_are_separated_in_each_mode() {
        check(StreamMode::Ndjson, None, "{\"a\":1}\r\n\n {\"b\":2}", &["{\"a\":1}", "{\"b\":2}"]);
        let lines = ": ping\ndata: {\"a\":1}\nevent: x\ndata:{\"b\":2}\n\n";
        check(StreamMode::JsonStream, Some("data:"), lines, &["{\"a\":1}", "{\"b\":2}"]);
        check(StreamMode::JsonStream, None, "1\n2", &["1", "2"]);
        let events = "event: x\ndata: {\"a\":\ndata: 1}\n\n: ping\n\ndata: [DONE]\n\ndata: cut";
        check(StreamMode::Sse, None, events, &["{\"a\":\n1}", "[DONE]"]);
    }

    #[test]
    fn long_message_is_reported_without_its_end() {
        for mode in [StreamMode::Ndjson, StreamMode::Sse] {
            let mut decoder = Decoder::new(&StreamConfig { mode, ..StreamConfig::default() });
            let mut chunk = Bytes::from(format!("data: {}", "x".repeat(2 * MAX_MESSAGE_BYTES)));
            assert_eq!(decoder.next(&mut chunk), Some(Message::TooLong));
        }
    }
}
