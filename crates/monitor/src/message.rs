//! Decoding of messages about calls. Messages are untrusted: each is decoded within the limits of the
//! wire format, and kept texts are truncated.

use std::time::Duration;

use rockbot_contracts::{
    CallStages, DecodeError, Envelope, Executed, Message, RoutingKey, ToolCallId, ToolCancel,
    ToolError, ToolErrorCode, ToolInvokeRequest, ToolInvokeResponse, ToolProgress,
    json::Limits,
    script::{ScriptInvokeRequest, ScriptInvokeResponse},
    topology::caller_of,
};

/// The longest kept prefix of a name, in characters.
const MAX_NAME_CHARS: usize = 128;

/// The longest kept prefix of arguments and results, in bytes.
const MAX_CONTENT_BYTES: usize = 4096;

/// The tool name for scripts, whose requests have none.
const SCRIPT: &str = "script";

/// A message about a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallMessage {
    /// The call.
    pub call: ToolCallId,
    /// The tool, if the message names one.
    pub tool: Option<String>,
    /// The calling agent, if the message names it.
    pub agent: Option<String>,
    /// The trace id, if the message has one.
    pub trace: Option<String>,
    /// The size of the body.
    pub bytes: usize,
    /// Kind and content.
    pub kind: MessageKind,
}

/// The kind and content of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageKind {
    /// A request to run a tool.
    Request(RequestInfo),
    /// Progress of a running call.
    Progress(ProgressInfo),
    /// A cancel by the caller.
    Cancel {
        /// The reason, if content is kept.
        reason: Option<String>,
    },
    /// The reply of a handler.
    Reply(ReplyInfo),
}

/// The content of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestInfo {
    /// The routing key.
    pub key: String,
    /// The broker user, validated by the broker.
    pub user: Option<String>,
    /// The reply address.
    pub reply_to: Option<String>,
    /// The server of an MCP tool.
    pub server: Option<String>,
    /// The conversation.
    pub session: Option<String>,
    /// The caller's time budget.
    pub budget: Option<Duration>,
    /// The number of this attempt; above 1 for a retry.
    pub attempt: u32,
    /// The arguments, if content is kept.
    pub arguments: Option<String>,
}

/// The content of a progress message.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressInfo {
    /// The number of the message.
    pub sequence: u64,
    /// The sender.
    pub handler: Option<String>,
    /// The text, if content is kept.
    pub text: Option<String>,
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyInfo {
    /// The outcome.
    pub status: Status,
    /// The execution state of the tool.
    pub executed: Executed,
    /// The sender.
    pub handler: Option<String>,
    /// The run time that the handler reports.
    pub run_time: Option<Duration>,
    /// The durations of the stages that the handler reports.
    pub stages: Option<CallStages>,
    /// The result, if content is kept.
    pub result: Option<String>,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The tool ran.
    Ok,
    /// The tool ran and reported its own failure.
    ToolError,
    /// The call failed.
    Error(ToolErrorCode),
}

impl Status {
    /// Returns the name of the status, the same as in the metrics.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error(code) => code.as_str(),
        }
    }
}

/// Decodes a message. Arguments and results are kept only with `content`, the first 4 KiB of each.
///
/// # Errors
/// When the message is no valid message about a call; it is to be reported as unreadable then.
pub fn decode(
    key: &RoutingKey,
    envelope: &Envelope,
    content: bool,
) -> Result<CallMessage, DecodeError> {
    let limits = Limits::default();
    let kept = |text: &str| content.then(|| truncate(text));
    let sender = || envelope.source.as_deref().map(name);
    let (call, tool, kind) = match envelope.message_type() {
        ScriptInvokeRequest::TYPE => {
            let request: ScriptInvokeRequest = envelope.decode(limits)?;
            let session = request.session_id.map(|id| id.to_string());
            let info = request_info(key, envelope, session, kept(&request.script));
            (request.tool_call_id, Some(SCRIPT.to_owned()), MessageKind::Request(info))
        }
        ToolProgress::TYPE => {
            let progress: ToolProgress = envelope.decode(limits)?;
            let text = progress.text.or(progress.partial).as_deref().and_then(kept);
            let info = ProgressInfo { sequence: progress.sequence, handler: sender(), text };
            (progress.tool_call_id, Some(name(&progress.tool_name)), MessageKind::Progress(info))
        }
        ToolCancel::TYPE => {
            let cancel: ToolCancel = envelope.decode(limits)?;
            (cancel.tool_call_id, None, MessageKind::Cancel { reason: kept(&cancel.reason) })
        }
        ToolInvokeResponse::TYPE => {
            let response: ToolInvokeResponse = envelope.decode(limits)?;
            let info = ReplyInfo {
                status: if response.is_error { Status::ToolError } else { Status::Ok },
                executed: Executed::Yes,
                handler: sender(),
                run_time: response.elapsed_ms.map(Duration::from_millis),
                stages: response.stages,
                result: kept(&response.content),
            };
            (response.tool_call_id, Some(name(&response.tool_name)), MessageKind::Reply(info))
        }
        ScriptInvokeResponse::TYPE => {
            let response: ScriptInvokeResponse = envelope.decode(limits)?;
            let info = ReplyInfo {
                status: if response.exit_code == 0 { Status::Ok } else { Status::ToolError },
                executed: Executed::Yes,
                handler: sender(),
                run_time: Some(Duration::from_millis(response.elapsed_ms)),
                stages: None,
                result: kept(&format!("{}{}", response.output, response.stderr)),
            };
            (response.tool_call_id, Some(SCRIPT.to_owned()), MessageKind::Reply(info))
        }
        ToolError::TYPE => {
            let error: ToolError = envelope.decode(limits)?;
            let info = ReplyInfo {
                status: Status::Error(error.code),
                executed: error.executed,
                handler: sender(),
                run_time: error.stages.map(|stages| Duration::from_millis(stages.run_ms)),
                stages: error.stages,
                result: kept(&error.message),
            };
            (error.tool_call_id, Some(name(&error.tool_name)), MessageKind::Reply(info))
        }
        // Other types fail to decode as a request.
        _ => {
            let request: ToolInvokeRequest = envelope.decode(limits)?;
            let session = Some(request.session_id.to_string());
            let info = request_info(key, envelope, session, kept(&request.arguments));
            (request.tool_call_id, Some(name(&request.tool_name)), MessageKind::Request(info))
        }
    };
    let agent = match &kind {
        MessageKind::Request(_) => sender().or_else(|| envelope.reply_to.as_ref().and_then(caller)),
        _ => caller(key),
    };
    let (bytes, trace) = (envelope.body.len(), trace_id(envelope));
    Ok(CallMessage { call, tool, agent, trace, bytes, kind })
}

fn request_info(
    key: &RoutingKey,
    envelope: &Envelope,
    session: Option<String>,
    arguments: Option<String>,
) -> RequestInfo {
    RequestInfo {
        key: key.to_string(),
        user: envelope.user_id.as_deref().map(name),
        reply_to: envelope.reply_to.as_ref().map(ToString::to_string),
        server: envelope.mcp_server.as_deref().map(name),
        session,
        budget: envelope.budget.map(|budget| budget.timeout),
        attempt: envelope.attempt,
        arguments,
    }
}

fn caller(key: &RoutingKey) -> Option<String> {
    caller_of(key).map(name)
}

/// Parses the trace id of a W3C `traceparent`: `<version>-<trace id>-<span id>-<flags>`.
fn trace_id(envelope: &Envelope) -> Option<String> {
    let id = envelope.trace.parent.as_deref()?.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

fn name(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

fn truncate(text: &str) -> String {
    match text.floor_char_boundary(MAX_CONTENT_BYTES) {
        whole if whole == text.len() => text.to_owned(),
        end => format!("{}…", &text[..end]),
    }
}

/// Describes a decoding error without any content of the message.
pub fn describe_error(error: &DecodeError) -> &'static str {
    match error {
        DecodeError::UnexpectedType { .. } => "unexpected type",
        DecodeError::NewerWire { .. } => "newer wire",
        DecodeError::TooLarge { .. } => "too large",
        DecodeError::TooDeep { .. } => "too deep",
        DecodeError::Malformed { .. } => "malformed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: CallStages = CallStages { queue_ms: Some(3), start_ms: 0, run_ms: 7 };

    fn key(key: &str) -> RoutingKey {
        RoutingKey::new(key).unwrap()
    }

    fn request(arguments: &str) -> Envelope {
        let request = ToolInvokeRequest {
            tool_call_id: ToolCallId::new("call-1").unwrap(),
            tool_name: "x".repeat(1_000_000),
            arguments: arguments.to_owned(),
            session_id: rockbot_contracts::SessionId::new("s").unwrap(),
        };
        Envelope::from_payload(&request).with_source("assistant").within(Duration::from_secs(5))
    }

    #[test]
    fn arguments_are_kept_only_with_content() {
        let request = request(&"é".repeat(MAX_CONTENT_BYTES));
        let kept = |content| {
            let message = decode(&key("tool.invoke"), &request, content).unwrap();
            assert_eq!(message.tool.unwrap().len(), MAX_NAME_CHARS);
            assert_eq!(message.agent.as_deref(), Some("assistant"));
            let MessageKind::Request(info) = message.kind else { panic!("{:?}", message.kind) };
            assert_eq!(info.budget, Some(Duration::from_secs(5)));
            info.arguments
        };
        assert_eq!(kept(false), None);
        assert_eq!(kept(true), Some(format!("{}…", "é".repeat(MAX_CONTENT_BYTES / 2))));
    }

    #[test]
    fn reply_names_caller_handler_and_trace() {
        let response = ToolInvokeResponse {
            tool_call_id: ToolCallId::new("call-1").unwrap(),
            tool_name: "read_file".to_owned(),
            content: "secret".to_owned(),
            is_error: true,
            blocks: Vec::new(),
            details: None,
            child_loop_id: None,
            elapsed_ms: Some(7),
            stages: Some(STAGES),
        };
        let mut envelope = Envelope::from_payload(&response).with_source("tool-handler/h1");
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        envelope.trace.parent = Some(format!("00-{trace}-00f067aa0ba902b7-01").into());
        let message = decode(&key("tool.result.assistant.i"), &envelope, false).unwrap();
        assert_eq!(message.agent.as_deref(), Some("assistant"));
        assert_eq!(message.trace.as_deref(), Some(trace));
        let expected = ReplyInfo {
            status: Status::ToolError,
            executed: Executed::Yes,
            handler: Some("tool-handler/h1".to_owned()),
            run_time: Some(Duration::from_millis(7)),
            stages: Some(STAGES),
            result: None,
        };
        assert_eq!(message.kind, MessageKind::Reply(expected));
        envelope.trace.parent = Some("00-\u{1b}[2J-x".into());
        assert_eq!(decode(&key("tool.result"), &envelope, false).unwrap().trace, None);
    }

    #[test]
    fn decoding_errors_reveal_no_content() {
        let unexpected = Envelope::raw("Secret", b"{}".to_vec());
        let malformed = Envelope::raw("ToolError", b"\"secret\"".to_vec());
        let deep = format!("{{\"details\":{}", "[".repeat(1000));
        let deep = Envelope::raw("ToolInvokeResponse", deep.into_bytes());
        let large = Envelope::raw("ToolProgress", vec![b' '; Limits::default().bytes + 1]);
        let mut newer = request("{}");
        newer.wire += 1;
        let errors = [unexpected, malformed, deep, large, newer].map(|envelope| {
            describe_error(&decode(&key("tool.result.a.b"), &envelope, true).unwrap_err())
        });
        let expected = ["unexpected type", "malformed", "too deep", "too large", "newer wire"];
        assert_eq!(errors, expected);
    }
}
