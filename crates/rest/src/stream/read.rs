//! Reading of a stream.

use http::header::CONTENT_TYPE;
use reqwest::Response;
use rockbot_egress::EgressError;
use rockbot_tools::ToolResult;

use super::{
    collector::{Collector, Step, StreamEnd},
    config::{StreamConfig, StreamMode},
    decoder::{Decoder, Message},
    updates::Updates,
};

/// Maximum size of a stream, as a multiple of the limit of its text. The message around a token of four bytes
/// has a few hundred.
const MAX_OVERHEAD: usize = 128;

/// Returns `true` if the response is a stream: an API may answer with a whole JSON document instead of
/// events.
pub(crate) fn is_stream(config: &StreamConfig, response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    config.mode != StreamMode::Sse || !essence.eq_ignore_ascii_case(b"application/json")
}

/// Reads a stream until its last message, and sends partial results. The text has at most `max_bytes`, the
/// stream 128 times as many.
///
/// A stream that fails after its first message is a result that reports an error and contains what came.
///
/// # Errors
/// When the connection fails before the first message.
pub(crate) async fn read(
    config: &StreamConfig,
    mut response: Response,
    max_bytes: usize,
    mut updates: Updates<'_>,
) -> Result<ToolResult, EgressError> {
    let mut decoder = Decoder::new(config);
    let mut collector = Collector::new(config, max_bytes);
    let mut rest = max_bytes.saturating_mul(MAX_OVERHEAD);
    loop {
        let mut chunk = match response.chunk().await.map_err(EgressError::from) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) if collector.is_empty() => return Err(error),
            Err(EgressError::TimedOut) => return Ok(collector.into_result(StreamEnd::Silent)),
            Err(_) => return Ok(collector.into_result(StreamEnd::Broken)),
        };
        // Of messages without a text, a stream could send any number.
        let Some(left) = rest.checked_sub(chunk.len()) else {
            return Ok(collector.into_result(StreamEnd::TooLong));
        };
        rest = left;
        while let Some(message) = decoder.next(&mut chunk) {
            if let Some(end) = step(&mut collector, &message, &mut updates) {
                return Ok(collector.into_result(end));
            }
        }
    }
    let last = decoder.finish();
    let end = last.and_then(|message| step(&mut collector, &message, &mut updates));
    let end = end.unwrap_or_else(|| collector.end_of_stream());
    Ok(collector.into_result(end))
}

/// Takes a message. Returns why the stream is read no further, if it is not.
fn step(
    collector: &mut Collector<'_>,
    message: &Message,
    updates: &mut Updates<'_>,
) -> Option<StreamEnd> {
    let Message::Text(text) = message else { return Some(StreamEnd::MessageTooLong) };
    match collector.accept(text) {
        Step::Ignored => None,
        Step::Grown => {
            updates.offer(collector.text());
            None
        }
        Step::Done => Some(StreamEnd::Complete),
        Step::NotJson => Some(StreamEnd::NotJson),
        Step::Full => Some(StreamEnd::Full),
    }
}
