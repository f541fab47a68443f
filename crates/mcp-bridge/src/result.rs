//! Conversion of MCP tool results.

use rmcp::model::{CallToolResult, ContentBlock as Block, ResourceContents};
use rockbot_contracts::ContentBlock;
use rockbot_tools::ToolResult;
use serde_json::{Value, json};

/// The longest kind of a content block that is reported, in characters.
const MAX_KIND_CHARS: usize = 40;

/// Converts a result without loss: text, images, audio, resources and structured content. Structured
/// content without any other content is quoted as text for the model.
pub(crate) fn tool_result(result: CallToolResult) -> ToolResult {
    let CallToolResult { content, structured_content, is_error, .. } = result;
    let mut content: Vec<_> = content.into_iter().map(convert_block).collect();
    if content.is_empty()
        && let Some(structured) = &structured_content
    {
        content.push(ContentBlock::Text { text: structured.to_string() });
    }
    ToolResult {
        content,
        details: structured_content,
        is_error: is_error.unwrap_or(false),
        ..ToolResult::default()
    }
}

/// Converts a result of which some content blocks are of unknown kinds or invalid; a text takes the
/// place of each. Returns `None` for anything but the result of a call.
pub(crate) fn readable_result(mut result: Value) -> Option<ToolResult> {
    let content = result.get_mut("content")?.as_array_mut()?;
    for block in content.iter_mut() {
        if serde_json::from_value::<Block>(block.clone()).is_err() {
            let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
            let kind: String = kind.chars().take(MAX_KIND_CHARS).collect();
            *block = json!({"type": "text", "text": format!("[content of the unsupported kind {kind:?}]")});
        }
    }
    serde_json::from_value(result).ok().map(tool_result)
}

/// Converts a content block.
pub(crate) fn convert_block(block: Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::Text { text: text.text },
        Block::Image(image) => ContentBlock::Image { data: image.data, mime_type: image.mime_type },
        Block::Audio(audio) => ContentBlock::Audio { data: audio.data, mime_type: audio.mime_type },
        Block::ResourceLink(link) => {
            let text = [Some(link.name), link.title, link.description];
            let text = text.into_iter().flatten().collect::<Vec<_>>().join(": ");
            let (uri, mime_type) = (link.uri, link.mime_type);
            // A model reads the text only, and needs the URI to refer to the resource.
            let text = Some(format!("{text} <{uri}>"));
            ContentBlock::Resource { uri, mime_type, text }
        }
        Block::Resource(embedded) => convert_resource(embedded.resource),
        _ => ContentBlock::Text { text: "[content of an unsupported kind]".to_owned() },
    }
}

/// Converts the content of a resource.
pub(crate) fn convert_resource(resource: ResourceContents) -> ContentBlock {
    match resource {
        ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
            ContentBlock::Resource { uri, mime_type, text: Some(text) }
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            convert_bytes(uri, mime_type, blob)
        }
        _ => ContentBlock::Text { text: "[resource of an unsupported kind]".to_owned() },
    }
}

/// Converts binary content: images and audio as such, anything else to a reference.
fn convert_bytes(uri: String, mime_type: Option<String>, data: String) -> ContentBlock {
    match mime_type {
        Some(mime_type) if mime_type.starts_with("image/") => {
            ContentBlock::Image { data, mime_type }
        }
        Some(mime_type) if mime_type.starts_with("audio/") => {
            ContentBlock::Audio { data, mime_type }
        }
        mime_type => {
            let text = Some(format!("[{} bytes of base64] <{uri}>", data.len()));
            ContentBlock::Resource { uri, mime_type, text }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_content_kind_is_converted() {
        let mcp_result: CallToolResult = serde_json::from_value(json!({
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "image", "data": "aQ==", "mimeType": "image/png"},
                {"type": "audio", "data": "aQ==", "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "a:1", "text": "t"}},
                {"type": "resource", "resource":
                    {"uri": "a:2", "mimeType": "image/gif", "blob": "aQ=="}},
                {"type": "resource", "resource": {"uri": "a:3", "blob": "aQ=="}},
                {"type": "resource_link", "uri": "a:4", "name": "n", "description": "d"},
            ],
            "structuredContent": {"n": 1},
            "isError": true,
        }))
        .unwrap();
        let result = tool_result(mcp_result);
        let kinds: Vec<_> =
            result.content.iter().map(|block| json!(block)["type"].clone()).collect();
        assert_eq!(
            json!(kinds),
            json!(["text", "image", "audio", "resource", "image", "resource", "resource"])
        );
        assert_eq!((result.details, result.is_error), (Some(json!({"n": 1})), true));
    }

    #[test]
    fn resource_link_text_contains_its_uri() {
        let mcp_result: CallToolResult = serde_json::from_value(json!({"content": [
            {"type": "resource_link", "uri": "file:///notes.md", "name": "notes", "title": "Notes"},
        ]}))
        .unwrap();
        assert_eq!(tool_result(mcp_result).to_text(), "notes: Notes <file:///notes.md>");
    }

    #[test]
    fn unknown_content_block_leaves_the_others() {
        let result = readable_result(json!({
            "content": [
                {"type": "text", "text": "before"},
                {"type": "hologram", "beam": 1},
                {"type": "image", "data": 7},
                {"type": "text", "text": "after"},
            ],
            "isError": true,
            "structuredContent": {"n": 1},
        }))
        .unwrap();
        assert_eq!(result.content.len(), 4);
        let text = result.to_text();
        assert!(text.starts_with("before") && text.ends_with("after"), "{text}");
        assert!(text.contains("unsupported kind \"hologram\""), "{text}");
        assert_eq!((result.details, result.is_error), (Some(json!({"n": 1})), true));
        assert!(readable_result(json!({"status": "ok"})).is_none());
    }

    #[test]
    fn structured_result_is_quoted_as_text() {
        let mcp_result: CallToolResult =
            serde_json::from_value(json!({"content": [], "structuredContent": [1, 2]})).unwrap();
        assert_eq!(tool_result(mcp_result).to_text(), "[1,2]");
    }
}
