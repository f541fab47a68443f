//! What a server answers to one request, or an error in its place.

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
use crate::transport::peer::read_body;

const ENDED: &str = "the server's answer ended before it was complete";

/// Reads the one message of an answer in JSON.
///
/// # Errors
/// When the connection breaks or says nothing for too long.
pub(super) async fn read_answer(
    response: Response,
    id: &RequestId,
) -> Result<Result<ServerJsonRpcMessage, Unreadable>, ConnectError> {
    let Some(body) = read_body(response, MAX_FRAME_BYTES).await? else {
        return Ok(Err(Unreadable::TooLarge));
    };
    let answer = frame::read(&body);
    Ok(answer.and_then(|message| answer_to(id, message).ok_or(Unreadable::Invalid)))
}

/// The message, if it answers this request.
pub(super) fn answer_to(
    id: &RequestId,
    message: ServerJsonRpcMessage,
) -> Option<ServerJsonRpcMessage> {
    answers(id, &message).unwrap_or_default().then_some(message)
}

/// Whether a message answers this request; none if it is no answer at all.
fn answers(id: &RequestId, message: &ServerJsonRpcMessage) -> Option<bool> {
    let answered = match message {
        ServerJsonRpcMessage::Response(response) => &response.id,
        ServerJsonRpcMessage::Error(error) => error.id.as_ref().unwrap_or(id),
        _ => return None,
    };
    // Some servers write numbers as text.
    Some(answered.to_string() == id.to_string())
}

/// The failure of a handshake whose answer can't be read.
pub(super) fn unreadable(why: Unreadable) -> ConnectError {
    ConnectError::Malformed(match why {
        Unreadable::TooLarge => "its answer is too large",
        Unreadable::Invalid => "its answer is not valid JSON-RPC",
    })
}

pub(super) fn error_to(id: &RequestId, text: impl Into<String>) -> ServerJsonRpcMessage {
    let error = ErrorData::internal_error(text.into(), None);
    ServerJsonRpcMessage::error(error, Some(id.clone()))
}

/// Events as rmcp takes them: those that answer one request, or those of no request.
///
/// What can't be read becomes an error for the request that it answers, or else for the one that
/// the stream belongs to. So does the end of a stream that has not answered its request, unless
/// the server gave an event an id: then rmcp asks for the rest.
pub(super) fn events_of(
    events: EventStream,
    owner: Option<RequestId>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let open = Open { events, owner, resumable: false };
    stream::unfold(Some(open), |open| async {
        let mut open = open?;
        match open.events.next().await {
            Ok(Some(event)) => {
                open.resumable |= event.id.is_some();
                Some((Ok(open.sse(event)), Some(open)))
            }
            end => {
                if let Some(error) = open.unanswered() {
                    return Some((Ok(error), None));
                }
                let error = end.err()?;
                Some((Err(SseError::Body(error.into())), None))
            }
        }
    })
    .boxed()
}

struct Open {
    events: EventStream,
    /// The request that is answered, until it is.
    owner: Option<RequestId>,
    /// The server can be asked for what comes after an event.
    resumable: bool,
}

impl Open {
    fn sse(&mut self, event: Event) -> Sse {
        let data = match event_text(&event) {
            _ if !has_message(&event) => None,
            Ok(text) => match self.accept(text) {
                Ok(()) => Some(text.to_owned()),
                Err(why) => self.in_place_of(text.as_bytes(), why),
            },
            Err((beginning, why)) => self.in_place_of(beginning, why),
        };
        let retry = event.retry.and_then(|retry| u64::try_from(retry.as_millis()).ok());
        Sse { event: event.name, data, id: event.id, retry }
    }

    fn accept(&mut self, text: &str) -> Result<(), Unreadable> {
        let message = frame::read(text.as_bytes())?;
        match self.owner.as_ref().and_then(|owner| answers(owner, &message)) {
            // rmcp takes any answer for the end of the stream: this one would leave the request
            // waiting.
            Some(false) => return Err(Unreadable::Invalid),
            Some(true) => self.owner = None,
            None => {}
        }
        Ok(())
    }

    fn in_place_of(&mut self, beginning: &[u8], why: Unreadable) -> Option<String> {
        let error = match self.owner.take() {
            Some(owner) => error_to(&owner, why.to_string()),
            None => frame::in_place_of(beginning, why)?,
        };
        serde_json::to_string(&error).ok()
    }

    /// An error for a request that will not be answered.
    fn unanswered(&mut self) -> Option<Sse> {
        let owner = self.owner.take().filter(|_| !self.resumable)?;
        let data = serde_json::to_string(&error_to(&owner, ENDED)).ok()?;
        Some(Sse::default().data(data))
    }
}
