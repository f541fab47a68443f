//! Results of calls for clients.

use rmcp::model::{CallToolResult, ContentBlock as Block, MetaObject, ResourceContents};
use rockbot_contracts::{ContentBlock, Executed, ToolCallId, ToolErrorCode, ToolSource};
use rockbot_tools::{ToolFailure, ToolResult};
use serde_json::{Value, json};

use crate::{known_outputs::KnownOutput, output_resource};

/// Metadata keys of a result.
const CALL_ID: &str = "rockbot/toolCallId";
const EXECUTED: &str = "rockbot/executed";

/// Facts about a call that its result depends on.
#[derive(Debug)]
pub(crate) struct CallFacts {
    pub(crate) id: ToolCallId,
    pub(crate) source: ToolSource,
    /// Handle in the result, if the client's revision of the protocol has links to resources.
    pub(crate) output: Option<KnownOutput>,
}

/// Converts the result of a tool.
pub(crate) fn completed(result: &ToolResult, facts: &CallFacts) -> CallToolResult {
    let mut content: Vec<_> = result.content.iter().map(block).collect();
    if let Some(output) = &facts.output {
        content.push(Block::resource_link(output_resource::resource(output)));
    }
    let structured = structured_content(result, facts);
    if result.is_error {
        let error = error_object(&facts.id, &ToolErrorCode::ExecutionFailed, Executed::Yes, false);
        let structured = structured.unwrap_or_else(|| json!({"error": error}));
        return with_meta(CallToolResult::error(content), facts, Executed::Yes, Some(structured));
    }
    with_meta(CallToolResult::success(content), facts, Executed::Yes, structured)
}

/// Converts the failure of a call.
pub(crate) fn failed(failure: &ToolFailure, facts: &CallFacts) -> CallToolResult {
    let (code, executed, retry) = (failure.code(), failure.executed(), failure.is_retryable());
    // Bounded, and without hosts, paths and stack traces, as for agents.
    let error = failure.to_wire(facts.id.clone(), "");
    let mut structured = error_object(&facts.id, &code, executed, retry);
    structured["message"] = json!(error.message);
    let can = if retry { "can be repeated" } else { "must not be repeated blindly" };
    let text = format!(
        "{}\n[code: {}; executed: {executed}; the call {can}]",
        error.message,
        code.as_str()
    );
    let result = CallToolResult::error(vec![Block::text(text)]);
    with_meta(result, facts, executed, Some(json!({"error": structured})))
}

/// Returns the message for a call of a search tool with invalid arguments.
pub(crate) fn invalid_arguments(message: &str, facts: &CallFacts) -> CallToolResult {
    failed(&ToolFailure::invalid(message), facts)
}

fn error_object(id: &ToolCallId, code: &ToolErrorCode, executed: Executed, retry: bool) -> Value {
    json!({"code": code, "executed": executed, "isRetryable": retry, "toolCallId": id})
}

/// Returns the structured content of an MCP server. That of other tools is for programs of the fleet.
fn structured_content(result: &ToolResult, facts: &CallFacts) -> Option<Value> {
    let details = result.details.as_ref().filter(|details| details.is_object())?;
    matches!(facts.source, ToolSource::Mcp(_)).then(|| details.clone())
}

fn with_meta(
    mut result: CallToolResult,
    facts: &CallFacts,
    executed: Executed,
    structured: Option<Value>,
) -> CallToolResult {
    let mut meta = MetaObject::new();
    meta.0.insert(CALL_ID.to_owned(), json!(facts.id));
    meta.0.insert(EXECUTED.to_owned(), json!(executed));
    result.meta = Some(meta);
    result.structured_content = structured;
    result
}

fn block(block: &ContentBlock) -> Block {
    match block {
        ContentBlock::Text { text } => Block::text(text.as_str()),
        ContentBlock::Image { data, mime_type } => Block::image(data.as_str(), mime_type.as_str()),
        ContentBlock::Audio { data, mime_type } => Block::audio(data.as_str(), mime_type.as_str()),
        ContentBlock::Resource { uri, mime_type, text: Some(text) } => {
            let contents = ResourceContents::text(text.as_str(), uri.as_str());
            Block::resource(match mime_type {
                Some(mime_type) => contents.with_mime_type(mime_type.as_str()),
                None => contents,
            })
        }
        // A client could not read it here.
        ContentBlock::Resource { uri, text: None, .. } => Block::text(format!("[resource {uri}]")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn facts(source: ToolSource) -> CallFacts {
        CallFacts { id: ToolCallId::new("call").unwrap(), source, output: None }
    }

    fn json_of(result: &CallToolResult) -> Value {
        serde_json::to_value(result).unwrap()
    }

    #[test]
    fn failure_says_whether_the_tool_ran() {
        let failure = ToolFailure::TimedOut {
            after: Duration::from_secs(1),
            executed: Executed::Unknown,
            repeatable: false,
        };
        let result = json_of(&failed(&failure, &facts(ToolSource::Files)));
        assert_eq!(result["isError"], true);
        let expected = json!({"code": "timeout", "executed": "unknown", "isRetryable": false,
            "toolCallId": "call", "message": "timeout"});
        assert_eq!(result["structuredContent"]["error"], expected);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("timeout\n[code: timeout; executed: unknown;"), "{text}");
        assert_eq!(result["_meta"]["rockbot/executed"], "unknown");
    }

    #[test]
    fn reported_error_of_a_tool_has_run() {
        let result = ToolResult::error("exit code 1");
        let result = json_of(&completed(&result, &facts(ToolSource::Files)));
        assert_eq!(result["isError"], true);
        assert_eq!(result["content"][0]["text"], "exit code 1");
        assert_eq!(result["structuredContent"]["error"]["executed"], "yes");
    }

    #[test]
    fn structured_content_is_that_of_mcp_servers_only() {
        let result = ToolResult::text("t").with_details(json!({"a": 1}));
        let of = |source| json_of(&completed(&result, &facts(source)))["structuredContent"].clone();
        assert_eq!(of(ToolSource::Mcp("s".to_owned())), json!({"a": 1}));
        assert_eq!(of(ToolSource::Files), Value::Null);
    }

    #[test]
    fn every_block_is_converted() {
        let text = || "t".to_owned();
        let resource =
            |text| ContentBlock::Resource { uri: "a:b".to_owned(), mime_type: None, text };
        let content = vec![
            ContentBlock::Text { text: text() },
            ContentBlock::Image { data: text(), mime_type: "image/png".to_owned() },
            ContentBlock::Audio { data: text(), mime_type: "audio/wav".to_owned() },
            resource(Some(text())),
            resource(None),
        ];
        let result = ToolResult { content, ..ToolResult::default() };
        let result = json_of(&completed(&result, &facts(ToolSource::Files)));
        let kinds: Vec<_> = result["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["text", "image", "audio", "resource", "text"]);
    }
}
