//! JSON records about calls, for the audit log and for hook commands.

use std::time::Duration;

use rockbot_contracts::Executed;
use rockbot_tools::{CallEnd, FinishedCall, ToolContext};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Maximum size of the arguments and of the result in one record, in bytes.
const MAX_CONTENT: usize = 64 * 1024;

/// Maximum length of a tool name in a record, in bytes. A call may name a tool that does not exist.
const MAX_TOOL_NAME: usize = 128;

/// The call itself, in audit records and on the standard input of hook commands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallRecord<'a> {
    tool_call_id: &'a str,
    tool: &'a str,
    agent: &'a str,
    session_id: &'a str,
    /// SHA-256 of the arguments as they were sent, in hexadecimal.
    arguments_sha256: String,
    arguments_bytes: usize,
}

impl<'a> CallRecord<'a> {
    pub(crate) fn new(context: &'a ToolContext, arguments: &str) -> Self {
        Self {
            tool_call_id: context.tool_call_id.as_str(),
            tool: shorten(&context.tool_name, MAX_TOOL_NAME),
            agent: context.agent.as_str(),
            session_id: context.session_id.as_str(),
            arguments_sha256: sha256(arguments),
            arguments_bytes: arguments.len(),
        }
    }
}

/// Outcome of a call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutcomeRecord<'a> {
    /// `ok`, `abandoned`, or an error code.
    outcome: &'a str,
    executed: Executed,
    duration_ms: u64,
    result_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_on: Option<&'a str>,
}

impl<'a> OutcomeRecord<'a> {
    pub(crate) fn new(end: &'a CallEnd) -> Self {
        Self {
            outcome: end.error.as_ref().map_or("ok", |code| code.as_str()),
            executed: end.executed,
            duration_ms: millis(end.elapsed),
            result_bytes: end.bytes,
            ran_on: end.ran_on.as_deref(),
        }
    }

    /// A call whose future was dropped: its caller no longer waits, and how it ended is not known.
    pub(crate) fn abandoned(elapsed: Duration, executed: Executed) -> Self {
        Self {
            outcome: "abandoned",
            executed,
            duration_ms: millis(elapsed),
            result_bytes: 0,
            ran_on: None,
        }
    }
}

/// Returns the result as text: the content, or the error that the model reads.
pub(crate) fn result_text(call: &FinishedCall<'_>) -> String {
    match call.result {
        Ok(result) => shorten(&result.to_text(), MAX_CONTENT).to_owned(),
        Err(failure) => failure.model_text(),
    }
}

/// Returns the arguments as text, up to the limit of a record.
pub(crate) fn arguments_text(arguments: &str) -> String {
    shorten(arguments, MAX_CONTENT).to_owned()
}

/// Returns at most the first `max_bytes` of a text, cut between characters.
fn shorten(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Returns the arguments as the tool gets them, repaired where a model wrote them incompletely; as text
/// if they cannot be repaired, in which case the tool does not run.
pub(crate) fn arguments_value(arguments: &str) -> Value {
    rockbot_tools::arguments::parse(arguments)
        .map_or_else(|_| Value::String(arguments.to_owned()), |parsed| parsed.value)
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
