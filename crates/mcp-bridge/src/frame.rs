//! Parsing of single messages from untrusted servers.
//!
//! A message that cannot be read fails the one call that it answers, and no other: the request id is
//! searched in the bytes that did arrive, and that request gets an error reply.

use rmcp::model::{
    ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage, ServerRequest, ServerResult,
    TaskPayload, Tool,
};

use crate::{
    elicitation::raw_form::{self, MAX_REQUESTS, TooManyRequests},
    entry_page, tool_page,
};

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
    /// It has more than [`MAX_REQUESTS`] requests for input.
    #[error("the server's response has more than {MAX_REQUESTS} requests for input")]
    TooManyRequests,
}

/// Parses a message. Listed tools that can only be called as tasks, and those with an unreadable definition, are
/// marked; see [`tool_page`]. Other lists have only their readable entries; see [`entry_page`].
///
/// # Errors
/// When it is unreadable; see [`error_reply`].
pub(crate) fn read(bytes: &[u8]) -> Result<ServerJsonRpcMessage, Unreadable> {
    if bytes.len() > MAX_FRAME_BYTES {
        return Err(Unreadable::TooLarge);
    }
    let mut message = match serde_json::from_slice(bytes) {
        Ok(message) if may_have_form(&message) => read_forms(bytes)?.ok_or(Unreadable::Invalid)?,
        Ok(message) if is_unexpected(&message) => read_by_entry(bytes)?.unwrap_or(message),
        Ok(message) => entry_page::without_left_out(message),
        Err(_) => read_by_entry(bytes)?.ok_or(Unreadable::Invalid)?,
    };
    if let Some(tools) = listed_tools(&mut message) {
        tool_page::mark_task_tools(bytes, tools);
    }
    Ok(message)
}

/// Returns whether a message may differ from the one that rmcp reads from the same bytes.
pub(crate) fn may_be_rewritten(message: &ServerJsonRpcMessage) -> bool {
    let is_page = match message {
        ServerJsonRpcMessage::Response(response) => matches!(
            response.result,
            ServerResult::ListToolsResult(_)
                | ServerResult::ListPromptsResult(_)
                | ServerResult::ListResourcesResult(_)
                | ServerResult::ListResourceTemplatesResult(_)
        ),
        _ => false,
    };
    is_page || may_have_form(message)
}

/// Returns whether a message is or has a request for input.
fn may_have_form(message: &ServerJsonRpcMessage) -> bool {
    match message {
        ServerJsonRpcMessage::Request(request) => match &request.request {
            ServerRequest::ElicitRequest(_) => true,
            ServerRequest::CustomRequest(request) => request.method == raw_form::METHOD,
            _ => false,
        },
        ServerJsonRpcMessage::Response(response) => match &response.result {
            ServerResult::InputRequiredResult(result) => result.input_requests.is_some(),
            ServerResult::GetTaskResult(task) => {
                matches!(task.task.payload, TaskPayload::InputRequired { .. })
            }
            _ => false,
        },
        _ => false,
    }
}

/// Reads a page of a list, or a result with requests for input, entry by entry. Returns `None` for any other
/// message.
fn read_by_entry(bytes: &[u8]) -> Result<Option<ServerJsonRpcMessage>, Unreadable> {
    match tool_page::read(bytes).or_else(|| entry_page::read(bytes)) {
        Some(page) => Ok(Some(page)),
        None => read_forms(bytes),
    }
}

/// Reads a message with requests for input. Returns `None` for any other message.
fn read_forms(bytes: &[u8]) -> Result<Option<ServerJsonRpcMessage>, Unreadable> {
    let message = raw_form::read(bytes).map_err(|TooManyRequests| Unreadable::TooManyRequests)?;
    Ok(message.filter(may_have_form))
}

/// Returns whether a response has none of the shapes that rmcp expects.
fn is_unexpected(message: &ServerJsonRpcMessage) -> bool {
    let ServerJsonRpcMessage::Response(response) = message else { return false };
    // An acknowledgement has no field but the type of the result, and may have any other.
    matches!(response.result, ServerResult::CustomResult(_) | ServerResult::TaskAckResult(_))
}

/// Returns the tools of a message that lists them.
pub(crate) fn listed_tools(message: &mut ServerJsonRpcMessage) -> Option<&mut Vec<Tool>> {
    let ServerJsonRpcMessage::Response(response) = message else { return None };
    match &mut response.result {
        ServerResult::ListToolsResult(list) => Some(&mut list.tools),
        _ => None,
    }
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
    use crate::tool_page::requires_task;

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
    fn tool_that_requires_a_task_is_marked() {
        let tool = |name: &str, support: &str| {
            format!(
                r#"{{"name":"{name}","inputSchema":{{}},"execution":{{"taskSupport":"{support}"}}}}"#
            )
        };
        let tools =
            [tool("a", "required"), tool("b", "optional"), tool("c", "forbidden")].join(",");
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tools}]}}}}"#);
        let mut message = read(text.as_bytes()).unwrap();
        let tools = listed_tools(&mut message).unwrap();
        let marked = tools.iter().filter(|tool| requires_task(tool));
        let names: Vec<_> = marked.map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, ["a"]);
        assert_eq!(tools.len(), 3);
    }

    #[test]
    fn required_input_with_a_state_alone_is_readable() {
        for requests in ["", r#","inputRequests":null"#] {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"input_required",
                    "requestState":"state"{requests}}}}}"#
            );
            let message = read(text.as_bytes()).unwrap();
            let ServerJsonRpcMessage::Response(response) = message else { panic!("{message:?}") };
            let ServerResult::InputRequiredResult(result) = response.result else {
                panic!("{response:?}")
            };
            assert_eq!(result.request_state.as_deref(), Some("state"), "{text}");
            assert!(result.input_requests.is_none(), "{text}");
        }
    }

    #[test]
    fn requests_for_input_do_not_make_a_page_readable() {
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"prompts":[7],"resources":[],
            "inputRequests":{"a":1e999},"_meta":{"rockbot/leftOut":7}}}"#;
        assert_eq!(read(text.as_bytes()).unwrap_err(), Unreadable::Invalid);
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
