//! Responses to single requests, or error replies in their place.

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::Response;
use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use rockbot_sse::Event;
use sse_stream::Sse;

use crate::frame::{self, MAX_FRAME_BYTES, Unreadable};
use crate::transport::event_stream::{EventStream, event_text, has_message};
use crate::transport::failure::ConnectError;
use crate::transport::peer::read_within;

const INCOMPLETE: &str = "the server's response ended before it was complete";

/// Reads the message of a JSON response.
///
/// # Errors
/// When the connection breaks or is idle for too long.
pub(super) async fn read_response(
    response: Response,
    id: &RequestId,
) -> Result<Result<ServerJsonRpcMessage, Unreadable>, ConnectError> {
    let Some(body) = read_within(response, MAX_FRAME_BYTES).await? else {
        return Ok(Err(Unreadable::TooLarge));
    };
    let message = frame::read(&body);
    Ok(message.and_then(|message| response_to(id, message).ok_or(Unreadable::Invalid)))
}

/// Returns the message if it answers this request.
pub(super) fn response_to(
    id: &RequestId,
    message: ServerJsonRpcMessage,
) -> Option<ServerJsonRpcMessage> {
    answers(id, &message).unwrap_or_default().then_some(message)
}

/// Returns whether a message answers this request, or `None` if it is not a response.
fn answers(id: &RequestId, message: &ServerJsonRpcMessage) -> Option<bool> {
    let response_id = match message {
        ServerJsonRpcMessage::Response(response) => &response.id,
        ServerJsonRpcMessage::Error(error) => error.id.as_ref().unwrap_or(id),
        _ => return None,
    };
    // Some servers write numbers as text.
    Some(response_id.to_string() == id.to_string())
}

/// Converts an unreadable handshake response to a failure.
pub(super) fn unreadable(reason: Unreadable) -> ConnectError {
    ConnectError::Malformed(match reason {
        Unreadable::TooLarge => "its response is too large",
        Unreadable::Invalid => "its response is not valid JSON-RPC",
        Unreadable::TooManyRequests => "its response has too many requests for input",
    })
}

pub(super) fn error_reply_to(id: &RequestId, text: impl Into<String>) -> ServerJsonRpcMessage {
    let error = ErrorData::internal_error(text.into(), None);
    ServerJsonRpcMessage::error(error, Some(id.clone()))
}

/// Converts an event stream for rmcp. `request` is the request that the stream answers; the standing
/// stream answers none.
///
/// Unreadable data becomes an error reply for the request that it answers, or else for the request of
/// the stream. So does the end of a stream that has not answered its request, unless the server gave
/// an event an id: rmcp resumes the stream then.
pub(super) fn response_events(
    events: EventStream,
    request: Option<RequestId>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let stream_state = ResponseStream { events, request, resumable: false };
    stream::unfold(Some(stream_state), |stream_state| async {
        let mut state = stream_state?;
        match state.events.next().await {
            Ok(Some(event)) => {
                state.resumable |= event.id.is_some();
                Some((Ok(state.convert(event)), Some(state)))
            }
            end => {
                if let Some(error) = state.unanswered() {
                    return Some((Ok(error), None));
                }
                let error = end.err()?;
                Some((Err(SseError::Body(error.into())), None))
            }
        }
    })
    .boxed()
}

struct ResponseStream {
    events: EventStream,
    /// The request of the stream, until it is answered.
    request: Option<RequestId>,
    /// The stream can be resumed after an event.
    resumable: bool,
}

impl ResponseStream {
    fn convert(&mut self, event: Event) -> Sse {
        let data = match event_text(&event) {
            _ if !has_message(&event) => None,
            Ok(text) => match self.accept(text) {
                Ok(text) => Some(text),
                Err(reason) => self.error_reply(text.as_bytes(), reason),
            },
            Err((prefix, reason)) => self.error_reply(prefix, reason),
        };
        let retry = event.retry.and_then(|retry| u64::try_from(retry.as_millis()).ok());
        Sse { event: event.name, data, id: event.id, retry }
    }

    /// Returns the text for rmcp.
    fn accept(&mut self, text: &str) -> Result<String, Unreadable> {
        let message = frame::read(text.as_bytes())?;
        match self.request.as_ref().and_then(|request| answers(request, &message)) {
            // rmcp takes any response for the end of the stream: this one would leave the request pending.
            Some(false) => return Err(Unreadable::Invalid),
            Some(true) => self.request = None,
            None => {}
        }
        // rmcp reads the text itself.
        if frame::may_be_rewritten(&message) {
            return serde_json::to_string(&message).map_err(|_| Unreadable::Invalid);
        }
        Ok(text.to_owned())
    }

    fn error_reply(&mut self, prefix: &[u8], reason: Unreadable) -> Option<String> {
        let error = match self.request.take() {
            Some(request) => error_reply_to(&request, reason.to_string()),
            None => frame::error_reply(prefix, reason)?,
        };
        serde_json::to_string(&error).ok()
    }

    /// Returns an error reply for a request that will not be answered.
    fn unanswered(&mut self) -> Option<Sse> {
        let request = self.request.take().filter(|_| !self.resumable)?;
        let data = serde_json::to_string(&error_reply_to(&request, INCOMPLETE)).ok()?;
        Some(Sse::default().data(data))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const RESULT: &str = r#""result""#;

    /// Returns the text for rmcp of an event with a result, or with another message.
    fn accepted(key: &str, value: &str) -> String {
        let events = EventStream::new(http::Response::new(Vec::<u8>::new()).into());
        let request = Some(RequestId::Number(3));
        let mut stream = ResponseStream { events, request, resumable: false };
        stream.accept(&format!(r#"{{"jsonrpc":"2.0","id":3,{key}:{value}}}"#)).unwrap()
    }

    #[tokio::test]
    async fn event_has_the_message_as_it_was_rewritten() {
        let left_out = |result: &str| {
            let message: Value = serde_json::from_str(&accepted(RESULT, result)).unwrap();
            message["result"]["_meta"]["rockbot/leftOut"].clone()
        };
        let own = r#"{"resources":[],"_meta":{"rockbot/leftOut":7}}"#;
        assert_eq!(left_out(own), Value::Null);
        assert_eq!(left_out(r#"{"resources":[{"name":"no URI"}]}"#), json!(1));

        let form = json!({"mode": "form", "message": "m", "requestedSchema":
            {"type": "object", "properties": {"x": {"type": "string", "writeOnly": true}}}});
        let requests = json!({"a": {"method": "elicitation/create", "params": form}});
        let required = json!({"resultType": "input_required", "inputRequests": requests});
        let request = r#""method":"elicitation/create","params""#;
        for text in [accepted(RESULT, &required.to_string()), accepted(request, &form.to_string())]
        {
            assert!(text.contains("rockbot/secret") && !text.contains("writeOnly"), "{text}");
        }
    }

    #[tokio::test]
    async fn event_with_another_message_is_unchanged() {
        let text = accepted(RESULT, r#"{ "content": [], "other": 1 }"#);
        assert!(text.contains(r#"{ "content": [], "other": 1 }"#), "{text}");
    }
}
