//! Outcomes of calls as responses show them.

use std::time::Duration;

use rockbot_contracts::{ContentBlock, Executed, ToolCallId};
use rockbot_mcp_server::CompletedCall;
use rockbot_tools::{ToolFailure, ToolResult};
use serde::Serialize;
use utoipa::ToSchema;

/// Largest text of all blocks of a response together, in bytes.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Largest number of blocks in a response.
const MAX_BLOCKS: usize = 64;
/// Largest URI or MIME type, in bytes.
const MAX_NAME_BYTES: usize = 2048;

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolCallView {
    /// Its id on the bus, in journals and in audit records.
    call_id: String,
    /// The tool.
    tool: String,
    /// `ok`, `tool_error` for an error that the tool reported, or an error code.
    outcome: String,
    /// Execution status of the tool: `no`, `yes` or `unknown`.
    executed: String,
    /// The call can be repeated without running twice.
    retryable: bool,
    /// The failure of a call without a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The content of the result. Untrusted.
    content: Vec<ContentView>,
    /// Number of further blocks.
    #[serde(skip_serializing_if = "is_zero")]
    blocks_left_out: usize,
    /// The process that ran the tool, or refused the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<String>,
    /// Time from the request to the outcome.
    elapsed_ms: u64,
}

/// A block of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContentView {
    /// `text`, `image`, `audio` or `resource`.
    kind: &'static str,
    /// The text of a text or a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Bytes of the text that are not here.
    #[serde(skip_serializing_if = "is_zero")]
    text_left_out: usize,
    /// Size of an image or audio, which are not part of the response, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    /// MIME type of an image, audio or resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    /// URI of a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ToolCallView {
    pub(super) fn new(tool: &str, completed: &CompletedCall, elapsed: Duration) -> Self {
        match &*completed.outcome {
            Ok(result) => Self::from_result(tool, &completed.id, result, elapsed),
            Err(failure) => Self::from_failure(tool, &completed.id, failure, elapsed),
        }
    }

    fn from_result(tool: &str, id: &ToolCallId, result: &ToolResult, elapsed: Duration) -> Self {
        let outcome = if result.is_error { "tool_error" } else { "ok" };
        let mut left = MAX_TEXT_BYTES;
        let blocks = result.content.iter().take(MAX_BLOCKS);
        Self {
            call_id: id.to_string(),
            tool: tool.to_owned(),
            outcome: outcome.to_owned(),
            executed: Executed::Yes.to_string(),
            retryable: false,
            message: None,
            content: blocks.map(|block| ContentView::new(block, &mut left)).collect(),
            blocks_left_out: result.content.len().saturating_sub(MAX_BLOCKS),
            handler: result.ran_on.clone(),
            elapsed_ms: millis(elapsed),
        }
    }

    fn from_failure(tool: &str, id: &ToolCallId, failure: &ToolFailure, elapsed: Duration) -> Self {
        // Bounded, and without hosts, paths and stack traces, as for agents.
        let error = failure.to_wire(id.clone(), tool);
        Self {
            call_id: id.to_string(),
            tool: tool.to_owned(),
            outcome: error.code.as_str().to_owned(),
            executed: error.executed.to_string(),
            retryable: error.is_retryable,
            message: Some(error.message),
            content: Vec::new(),
            blocks_left_out: 0,
            handler: failure.ran_on().map(str::to_owned),
            elapsed_ms: millis(elapsed),
        }
    }
}

impl ContentView {
    /// Describes a block, with up to `left` bytes of its text.
    fn new(block: &ContentBlock, left: &mut usize) -> Self {
        match block {
            ContentBlock::Text { text } => Self::text("text", text, left),
            ContentBlock::Image { data, mime_type } => Self::data("image", data, mime_type),
            ContentBlock::Audio { data, mime_type } => Self::data("audio", data, mime_type),
            ContentBlock::Resource { uri, mime_type, text } => {
                let text = text.as_ref().map(|text| Self::text("resource", text, left));
                Self {
                    kind: "resource",
                    uri: Some(cut(uri, MAX_NAME_BYTES)),
                    mime_type: mime_type.as_ref().map(|name| cut(name, MAX_NAME_BYTES)),
                    ..text.unwrap_or_default()
                }
            }
        }
    }

    fn text(kind: &'static str, text: &str, left: &mut usize) -> Self {
        let shown = cut(text, *left);
        *left -= shown.len();
        Self { kind, text_left_out: text.len() - shown.len(), text: Some(shown), ..Self::default() }
    }

    fn data(kind: &'static str, data: &str, mime_type: &str) -> Self {
        Self {
            kind,
            // Base64: four characters for three bytes.
            bytes: Some(data.trim_end_matches('=').len() * 3 / 4),
            mime_type: Some(cut(mime_type, MAX_NAME_BYTES)),
            ..Self::default()
        }
    }
}

fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(result: &ToolResult) -> serde_json::Value {
        let id = ToolCallId::new("call").unwrap();
        json!(ToolCallView::from_result("t", &id, result, Duration::from_millis(7)))
    }

    #[test]
    fn text_of_all_blocks_is_bounded() {
        let text = |text: String| ContentBlock::Text { text };
        let content = vec![text("ä".repeat(MAX_TEXT_BYTES / 2 - 1)), text("xyz".to_owned())];
        let shown = view(&ToolResult { content, ..ToolResult::default() });
        assert_eq!(shown["content"][0].get("textLeftOut"), None);
        assert_eq!(shown["content"][1], json!({"kind": "text", "text": "xy", "textLeftOut": 1}));
        let content = vec![text("a".to_owned()); MAX_BLOCKS + 3];
        let shown = view(&ToolResult { content, ..ToolResult::default() });
        assert_eq!(shown["blocksLeftOut"], 3);
    }

    #[test]
    fn data_is_described_by_its_size() {
        let content = vec![
            ContentBlock::Image { data: "AAAA".to_owned(), mime_type: "image/png".to_owned() },
            ContentBlock::Audio { data: "AAA=".to_owned(), mime_type: "audio/wav".to_owned() },
            ContentBlock::Resource { uri: "a:b".to_owned(), mime_type: None, text: None },
        ];
        let shown = view(&ToolResult { content, is_error: true, ..ToolResult::default() });
        let expected = json!([
            {"kind": "image", "bytes": 3, "mimeType": "image/png"},
            {"kind": "audio", "bytes": 2, "mimeType": "audio/wav"},
            {"kind": "resource", "uri": "a:b"},
        ]);
        assert_eq!(shown["content"], expected);
        assert_eq!((&shown["outcome"], &shown["executed"]), (&json!("tool_error"), &json!("yes")));
    }

    #[test]
    fn failure_says_whether_the_tool_ran() {
        let failure = ToolFailure::TimedOut {
            after: Duration::from_secs(1),
            executed: Executed::Unknown,
            repeatable: false,
        };
        let id = ToolCallId::new("call").unwrap();
        let shown = json!(ToolCallView::from_failure("t", &id, &failure, Duration::ZERO));
        let expected = json!({"callId": "call", "tool": "t", "outcome": "timeout", "executed": "unknown",
            "retryable": false, "message": "timeout", "content": [], "elapsedMs": 0});
        assert_eq!(shown, expected);
    }
}
