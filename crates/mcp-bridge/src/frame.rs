//! One message of a server, read with suspicion.
//!
//! A server may send anything. What can't be read must end the one call that it was meant for, and
//! no other: so the reader looks for the id of the request in what did arrive, and answers that
//! request with an error in the server's place.

use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};

/// The largest message taken from a server, in bytes.
pub(crate) const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// How much of a message that is too large is looked at for the id of its request.
pub(crate) const LOOK_BYTES: usize = rockbot_sse::PREFIX_BYTES;

/// Why a message can't be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It goes over [`MAX_FRAME_BYTES`].
    #[error("the server's answer has more than {MAX_FRAME_BYTES} bytes")]
    TooLarge,
    /// It is not a message of the protocol.
    #[error("the server's answer is not valid JSON-RPC")]
    Invalid,
}

/// Reads a message.
///
/// # Errors
/// When it is none; see [`in_place_of`].
pub(crate) fn read(bytes: &[u8]) -> Result<ServerJsonRpcMessage, Unreadable> {
    if bytes.len() > MAX_FRAME_BYTES {
        return Err(Unreadable::TooLarge);
    }
    serde_json::from_slice(bytes).map_err(|_| Unreadable::Invalid)
}

/// What to hand to whoever waits for the message that begins with `beginning`: an error under its
/// id. None when it does not say which request it answers.
pub(crate) fn in_place_of(beginning: &[u8], why: Unreadable) -> Option<ServerJsonRpcMessage> {
    let id = id_in(beginning)?;
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why.to_string(), None);
    Some(ServerJsonRpcMessage::error(error, Some(id)))
}

/// The `"id"` at the top level of an object that may be cut anywhere; none of a request, whose id is
/// the server's.
fn id_in(beginning: &[u8]) -> Option<RequestId> {
    let beginning = &beginning[..beginning.len().min(LOOK_BYTES)];
    let (mut depth, mut at) = (0_usize, 0);
    let mut id = None;
    while at < beginning.len() {
        match beginning[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let Some(end) = end_of_string(beginning, at) else { break };
                let rest = &beginning[end..];
                let colon = rest.iter().position(|byte| !byte.is_ascii_whitespace());
                let is_key = colon.is_some_and(|colon| rest[colon] == b':');
                match &beginning[at..end] {
                    b"\"method\"" if depth == 1 && is_key => return None,
                    b"\"id\"" if depth == 1 && is_key => id = id_value(&rest[colon? + 1..]),
                    _ => {}
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    id
}

/// Where the string that opens at `from` has ended.
fn end_of_string(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn id_value(bytes: &[u8]) -> Option<RequestId> {
    // The first value of a stream of values: what follows need not be JSON.
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<RequestId>();
    values.next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(beginning: &str, expected: Option<&RequestId>) {
        let error = in_place_of(beginning.as_bytes(), Unreadable::Invalid);
        let got = error.and_then(|message| match message {
            ServerJsonRpcMessage::Error(error) => error.id,
            other => panic!("{other:?}"),
        });
        assert_eq!(got.as_ref(), expected, "{beginning}");
    }

    #[test]
    fn the_request_of_a_broken_answer_is_found() {
        let seven = &RequestId::Number(7);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"te"#, Some(seven));
        check(r#"{"id" : 7 , garbage"#, Some(seven));
        check(r#"{"result":{"id":1,"x":[{"id":2}]},"id":7}"#, Some(seven));
        check(r#"{"id":"a\"b","result"#, Some(&RequestId::String(r#"a"b"#.into())));
    }

    #[test]
    fn an_answer_to_nobody_is_told_to_nobody() {
        for text in [
            "",
            "id",
            "{",
            r#"{"id"#,
            r#"{"id":"#,
            r#"{"id":{}}"#,
            r#"{"result":{"id":1"#,
            r#"["id", 7]"#,
            r#"{"text":"\"id\":7"}"#,
            r#"{"a":"id","b":7}"#,
            r#"{"\"#,
            r#"{"id":7,"method":"sampling/createMessage","params":{"#,
            r#"{"method":"x","id":7"#,
        ] {
            check(text, None);
        }
    }
}
