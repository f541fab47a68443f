//! What a server's tool said, as a result of any other tool.

use rmcp::model::{CallToolResult, ContentBlock as Block, ResourceContents};
use rockbot_contracts::ContentBlock;
use rockbot_tools::ToolResult;

/// Nothing is lost: text, pictures, sound, resources, and what the server says for programs. A server
/// that says it for programs only is quoted to the model.
pub(crate) fn result(said: CallToolResult) -> ToolResult {
    let CallToolResult { content, structured_content, is_error, .. } = said;
    let mut content: Vec<_> = content.into_iter().map(block).collect();
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

fn block(block: Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::Text { text: text.text },
        Block::Image(image) => ContentBlock::Image { data: image.data, mime_type: image.mime_type },
        Block::Audio(audio) => ContentBlock::Audio { data: audio.data, mime_type: audio.mime_type },
        Block::ResourceLink(link) => {
            let text = [Some(link.name), link.title, link.description];
            let text = text.into_iter().flatten().collect::<Vec<_>>().join(": ");
            let (uri, mime_type) = (link.uri, link.mime_type);
            ContentBlock::Resource { uri, mime_type, text: Some(text) }
        }
        Block::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                ContentBlock::Resource { uri, mime_type, text: Some(text) }
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                of_bytes(uri, mime_type, blob)
            }
            _ => ContentBlock::Text { text: "[a resource of a newer kind]".to_owned() },
        },
        _ => ContentBlock::Text { text: "[content of a newer kind]".to_owned() },
    }
}

/// Bytes that are a picture or sound are handed on as that; others stay where they are.
fn of_bytes(uri: String, mime_type: Option<String>, data: String) -> ContentBlock {
    match mime_type {
        Some(mime_type) if mime_type.starts_with("image/") => {
            ContentBlock::Image { data, mime_type }
        }
        Some(mime_type) if mime_type.starts_with("audio/") => {
            ContentBlock::Audio { data, mime_type }
        }
        mime_type => {
            let text = Some(format!("[{} bytes of base64]", data.len()));
            ContentBlock::Resource { uri, mime_type, text }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_arrives() {
        let said: CallToolResult = serde_json::from_value(json!({
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
        let result = result(said);
        let kinds: Vec<_> =
            result.content.iter().map(|block| json!(block)["type"].clone()).collect();
        assert_eq!(
            json!(kinds),
            json!(["text", "image", "audio", "resource", "image", "resource", "resource"])
        );
        assert_eq!((result.details, result.is_error), (Some(json!({"n": 1})), true));
    }

    #[test]
    fn a_result_for_programs_is_quoted_to_the_model() {
        let said: CallToolResult =
            serde_json::from_value(json!({"content": [], "structuredContent": [1, 2]})).unwrap();
        assert_eq!(result(said).to_text(), "[1,2]");
    }
}
