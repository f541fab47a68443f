//! What one message says about a call. Messages are of strangers: each is decoded within the limits
//! of the wire, and what is kept of it is cut.

use std::time::Duration;

use rockbot_contracts::{
    DecodeError, Envelope, Executed, Message, RoutingKey, ToolCallId, ToolCancel, ToolError,
    ToolErrorCode, ToolInvokeRequest, ToolInvokeResponse, ToolProgress,
    json::Limits,
    script::{ScriptInvokeRequest, ScriptInvokeResponse},
    topology::asker_of,
};

/// Most characters that are kept of a name.
const NAME: usize = 128;

/// Most bytes that are kept of what was asked or answered.
pub(super) const CONTENT: usize = 4096;

/// How scripts are called, whose requests name no tool.
const SCRIPT: &str = "script";

/// One message about a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Heard {
    pub(super) call: ToolCallId,
    /// The tool, where the message names one.
    pub(super) tool: Option<String>,
    /// Who asks, where the message tells.
    pub(super) agent: Option<String>,
    /// The id of its trace, where it has one.
    pub(super) trace: Option<String>,
    /// Size of the body.
    pub(super) bytes: usize,
    pub(super) what: What,
}

/// What it says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    Asked(Asked),
    Progressed(Progressed),
    /// The reason is content.
    Cancelled {
        reason: Option<String>,
    },
    Answered(Answered),
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The key it was sent with.
    pub(super) key: String,
    /// The user that the broker vouches for.
    pub(super) user: Option<String>,
    pub(super) reply_to: Option<String>,
    pub(super) server: Option<String>,
    pub(super) session: Option<String>,
    /// How long the asker waits.
    pub(super) budget: Option<Duration>,
    /// Above 1 when the asker could not tell whether an earlier one arrived.
    pub(super) times: u32,
    pub(super) arguments: Option<String>,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Progressed {
    pub(super) sequence: u64,
    pub(super) worker: Option<String>,
    pub(super) text: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answered {
    pub(super) status: Status,
    pub(super) executed: Executed,
    pub(super) worker: Option<String>,
    /// How long it ran, by the worker's word.
    pub(super) ran: Option<Duration>,
    pub(super) result: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// The tool ran and says itself that it failed.
    ToolError,
    Error(ToolErrorCode),
}

impl Status {
    /// As in the metrics.
    pub(super) fn word(&self) -> &str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error(code) => code.as_str(),
        }
    }
}

/// Reads a message; what was asked and answered is kept only with `content`.
pub(super) fn read(
    key: &RoutingKey,
    envelope: &Envelope,
    content: bool,
) -> Result<Heard, DecodeError> {
    let limits = Limits::default();
    let kept = |text: &str| content.then(|| cut(text));
    let sender = || envelope.source.as_deref().map(name);
    let (call, tool, what) = match envelope.message_type() {
        ScriptInvokeRequest::TYPE => {
            let request: ScriptInvokeRequest = envelope.decode(limits)?;
            let session = request.session_id.map(|id| id.to_string());
            let asked = asked(key, envelope, session, kept(&request.script));
            (request.tool_call_id, Some(SCRIPT.to_owned()), What::Asked(asked))
        }
        ToolProgress::TYPE => {
            let said: ToolProgress = envelope.decode(limits)?;
            let text = said.text.or(said.partial).as_deref().and_then(kept);
            let progressed = Progressed { sequence: said.sequence, worker: sender(), text };
            (said.tool_call_id, Some(name(&said.tool_name)), What::Progressed(progressed))
        }
        ToolCancel::TYPE => {
            let cancel: ToolCancel = envelope.decode(limits)?;
            (cancel.tool_call_id, None, What::Cancelled { reason: kept(&cancel.reason) })
        }
        ToolInvokeResponse::TYPE => {
            let said: ToolInvokeResponse = envelope.decode(limits)?;
            let answered = Answered {
                status: if said.is_error { Status::ToolError } else { Status::Ok },
                executed: Executed::Yes,
                worker: sender(),
                ran: said.elapsed_ms.map(Duration::from_millis),
                result: kept(&said.content),
            };
            (said.tool_call_id, Some(name(&said.tool_name)), What::Answered(answered))
        }
        ScriptInvokeResponse::TYPE => {
            let said: ScriptInvokeResponse = envelope.decode(limits)?;
            let answered = Answered {
                status: if said.exit_code == 0 { Status::Ok } else { Status::ToolError },
                executed: Executed::Yes,
                worker: sender(),
                ran: Some(Duration::from_millis(said.elapsed_ms)),
                result: kept(&format!("{}{}", said.output, said.stderr)),
            };
            (said.tool_call_id, Some(SCRIPT.to_owned()), What::Answered(answered))
        }
        ToolError::TYPE => {
            let error: ToolError = envelope.decode(limits)?;
            let answered = Answered {
                status: Status::Error(error.code),
                executed: error.executed,
                worker: sender(),
                ran: None,
                result: kept(&error.message),
            };
            (error.tool_call_id, Some(name(&error.tool_name)), What::Answered(answered))
        }
        // And the error for what does not belong here.
        _ => {
            let request: ToolInvokeRequest = envelope.decode(limits)?;
            let session = Some(request.session_id.to_string());
            let asked = asked(key, envelope, session, kept(&request.arguments));
            (request.tool_call_id, Some(name(&request.tool_name)), What::Asked(asked))
        }
    };
    let agent = match &what {
        What::Asked(_) => sender().or_else(|| envelope.reply_to.as_ref().and_then(asker)),
        _ => asker(key),
    };
    let (bytes, trace) = (envelope.body.len(), trace_id(envelope));
    Ok(Heard { call, tool, agent, trace, bytes, what })
}

fn asked(
    key: &RoutingKey,
    envelope: &Envelope,
    session: Option<String>,
    arguments: Option<String>,
) -> Asked {
    Asked {
        key: key.to_string(),
        user: envelope.user_id.as_deref().map(name),
        reply_to: envelope.reply_to.as_ref().map(ToString::to_string),
        server: envelope.mcp_server.as_deref().map(name),
        session,
        budget: envelope.budget.map(|budget| budget.timeout),
        times: envelope.attempt,
        arguments,
    }
}

fn asker(key: &RoutingKey) -> Option<String> {
    asker_of(key).map(name)
}

/// The id in a `traceparent` of W3C: `<version>-<trace id>-<span id>-<flags>`.
fn trace_id(envelope: &Envelope) -> Option<String> {
    let id = envelope.trace.parent.as_deref()?.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

fn name(text: &str) -> String {
    text.chars().take(NAME).collect()
}

fn cut(text: &str) -> String {
    match text.floor_char_boundary(CONTENT) {
        whole if whole == text.len() => text.to_owned(),
        end => format!("{}…", &text[..end]),
    }
}

/// What is wrong with a message that can't be read, without a word of what is in it.
pub(super) fn trouble(error: &DecodeError) -> &'static str {
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
        Envelope::of(&request).from_source("assistant").within(Duration::from_secs(5))
    }

    #[test]
    fn arguments_are_kept_only_when_asked_for_and_names_are_cut() {
        let request = request(&"é".repeat(CONTENT));
        let kept = |content| {
            let heard = read(&key("tool.invoke"), &request, content).unwrap();
            assert_eq!(heard.tool.unwrap().len(), NAME);
            assert_eq!(heard.agent.as_deref(), Some("assistant"));
            let What::Asked(asked) = heard.what else { panic!("{:?}", heard.what) };
            assert_eq!(asked.budget, Some(Duration::from_secs(5)));
            asked.arguments
        };
        assert_eq!(kept(false), None);
        assert_eq!(kept(true), Some(format!("{}…", "é".repeat(CONTENT / 2))));
    }

    #[test]
    fn an_answer_tells_its_asker_its_worker_and_its_trace() {
        let answer = ToolInvokeResponse {
            tool_call_id: ToolCallId::new("call-1").unwrap(),
            tool_name: "read_file".to_owned(),
            content: "secret".to_owned(),
            is_error: true,
            blocks: Vec::new(),
            details: None,
            child_loop_id: None,
            elapsed_ms: Some(7),
        };
        let mut envelope = Envelope::of(&answer).from_source("tool-handler/h1");
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        envelope.trace.parent = Some(format!("00-{trace}-00f067aa0ba902b7-01").into());
        let heard = read(&key("tool.result.assistant.i"), &envelope, false).unwrap();
        assert_eq!(heard.agent.as_deref(), Some("assistant"));
        assert_eq!(heard.trace.as_deref(), Some(trace));
        let expected = Answered {
            status: Status::ToolError,
            executed: Executed::Yes,
            worker: Some("tool-handler/h1".to_owned()),
            ran: Some(Duration::from_millis(7)),
            result: None,
        };
        assert_eq!(heard.what, What::Answered(expected));
        envelope.trace.parent = Some("00-\u{1b}[2J-x".into());
        assert_eq!(read(&key("tool.result"), &envelope, false).unwrap().trace, None);
    }

    #[test]
    fn what_does_not_belong_is_told_without_its_words() {
        let stranger = Envelope::raw("Secret", b"{}".to_vec());
        let nonsense = Envelope::raw("ToolError", b"\"secret\"".to_vec());
        let deep = format!("{{\"details\":{}", "[".repeat(1000));
        let deep = Envelope::raw("ToolInvokeResponse", deep.into_bytes());
        let large = Envelope::raw("ToolProgress", vec![b' '; Limits::default().bytes + 1]);
        let mut newer = request("{}");
        newer.wire += 1;
        let troubles = [stranger, nonsense, deep, large, newer]
            .map(|envelope| trouble(&read(&key("tool.result.a.b"), &envelope, true).unwrap_err()));
        let expected = ["unexpected type", "malformed", "too deep", "too large", "newer wire"];
        assert_eq!(troubles, expected);
    }
}
