//! Parsing of single messages from untrusted servers.
//!
//! A message that cannot be read fails the one call that it answers, and no other: the request id is
//! searched in the bytes that did arrive, and that request gets an error reply.

use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};

/// The largest message that is accepted from a server, in bytes.
pub(crate) const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of an oversized message that are searched for its request id.
pub(crate) const PREFIX_BYTES: usize = rockbot_sse::PREFIX_BYTES;

/// The reason why a message is unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It exceeds [`MAX_FRAME_BYTES`].
    #[error("the server's response exceeds {MAX_FRAME_BYTES} bytes")]
    TooLarge,
    /// It is not a protocol message.
    #[error("the server's response is not valid JSON-RPC")]
    Invalid,
}

/// Parses a message.
///
/// # Errors
/// When it is unreadable; see [`error_reply`].
pub(crate) fn read(bytes: &[u8]) -> Result<ServerJsonRpcMessage, Unreadable> {
    if bytes.len() > MAX_FRAME_BYTES {
        return Err(Unreadable::TooLarge);
    }
    serde_json::from_slice(bytes).map_err(|_| Unreadable::Invalid)
}

/// Returns an error reply for the request that the message starting with `prefix` answers. Returns
/// `None` when the prefix does not contain the request id.
pub(crate) fn error_reply(prefix: &[u8], reason: Unreadable) -> Option<ServerJsonRpcMessage> {
    let id = find_id(prefix)?;
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, reason.to_string(), None);
    Some(ServerJsonRpcMessage::error(error, Some(id)))
}

/// Returns the top-level `"id"` of an object that may be cut off anywhere. Returns `None` for a
/// request, whose id belongs to the server.
fn find_id(prefix: &[u8]) -> Option<RequestId> {
    let prefix = &prefix[..prefix.len().min(PREFIX_BYTES)];
    let (mut depth, mut at) = (0_usize, 0);
    let mut id = None;
    while at < prefix.len() {
        match prefix[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let Some(end) = string_end(prefix, at) else { break };
                let rest = &prefix[end..];
                let colon = rest.iter().position(|byte| !byte.is_ascii_whitespace());
                let is_key = colon.is_some_and(|colon| rest[colon] == b':');
                match &prefix[at..end] {
                    b"\"method\"" if depth == 1 && is_key => return None,
                    b"\"id\"" if depth == 1 && is_key => id = parse_id(&rest[colon? + 1..]),
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

/// Returns the position after the string that opens at `from`.
fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn parse_id(bytes: &[u8]) -> Option<RequestId> {
    // The first of a stream of values: what follows need not be JSON.
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<RequestId>();
    values.next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prefix: &str, expected: Option<&RequestId>) {
        let error = error_reply(prefix.as_bytes(), Unreadable::Invalid);
        let got = error.and_then(|message| match message {
            ServerJsonRpcMessage::Error(error) => error.id,
            other => panic!("{other:?}"),
        });
        assert_eq!(got.as_ref(), expected, "{prefix}");
    }

    #[test]
    fn broken_response_yields_its_request_id() {
        let seven = &RequestId::Number(7);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"te"#, Some(seven));
        check(r#"{"id" : 7 , garbage"#, Some(seven));
        check(r#"{"result":{"id":1,"x":[{"id":2}]},"id":7}"#, Some(seven));
        check(r#"{"id":"a\"b","result"#, Some(&RequestId::String(r#"a"b"#.into())));
    }

    #[test]
    fn message_without_request_id_yields_no_reply() {
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
