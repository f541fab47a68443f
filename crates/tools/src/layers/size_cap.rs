//! Size limit of results.

use std::sync::Arc;

use rockbot_contracts::ContentBlock;
use tracing::warn;

use super::{Call, CallService};
use crate::{
    context::ToolContext,
    failure::ToolFailure,
    outputs::{Outputs, TOOL_OUTPUT},
    result::{ToolResult, block_bytes},
};

/// Stores text that is too long and returns a handle in its place. Text that cannot be stored is
/// truncated with a note. Images, audio and resources that do not fit are omitted, because a part of
/// them is useless.
#[derive(Debug, Clone)]
pub struct SizeCap<S> {
    /// Maximum size of the content, in bytes.
    max_bytes: usize,
    /// Storage of text that is too long. Without it the text is truncated.
    outputs: Option<Arc<Outputs>>,
    inner: S,
}

impl<S> SizeCap<S> {
    pub(crate) fn new(max_bytes: usize, outputs: Option<Arc<Outputs>>, inner: S) -> Self {
        Self { max_bytes, outputs, inner }
    }
}

impl<S: CallService<Call>> CallService<Call> for SizeCap<S> {
    async fn call(&self, call: Call) -> Result<ToolResult, ToolFailure> {
        let Self { max_bytes, outputs, .. } = self;
        // Text read from stored outputs is short; a handle in its place would be useless.
        let reads_outputs = call.tool.registration().name == TOOL_OUTPUT;
        let outputs = outputs.as_ref().filter(|_| !reads_outputs);
        let shown = outputs.map_or(*max_bytes, |outputs| outputs.shown_bytes(*max_bytes));
        let context = outputs.map(|_| Box::new(call.context.clone()));
        let mut result = self.inner.call(call).await?;
        let texts = result.content.iter().filter(|block| is_text(block));
        if texts.map(block_bytes).sum::<usize>() > shown
            && let Some((outputs, context)) = outputs.zip(context)
        {
            Box::pin(store_text(&mut result, outputs, &context)).await;
        }
        truncate(&mut result, shown, *max_bytes);
        // Structured data has the same limit; a part of it is useless.
        if result.details.as_ref().is_some_and(|details| details.to_string().len() > *max_bytes) {
            result.details = None;
        }
        Ok(result)
    }
}

fn is_text(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Text { .. } | ContentBlock::Resource { text: Some(_), .. })
}

/// Replaces all text by a handle, if it can be stored.
async fn store_text(result: &mut ToolResult, outputs: &Outputs, context: &ToolContext) {
    let (texts, others): (Vec<_>, Vec<_>) = result.content.iter().cloned().partition(is_text);
    let text = ToolResult { content: texts, ..ToolResult::default() }.to_text().into_owned();
    match outputs.store(context, text).await {
        Ok(stored) => {
            result.content = vec![ContentBlock::Text { text: stored.message }];
            result.content.extend(others);
        }
        Err(error) => {
            let (tool_call_id, tool) = (&context.tool_call_id, &context.tool_name);
            warn!(%tool_call_id, %tool, %error, "large output not stored; truncating it");
        }
    }
}

/// Truncates text to `text_bytes`, and all content to `max_bytes`. Content that fits is unchanged.
fn truncate(result: &mut ToolResult, text_bytes: usize, max_bytes: usize) {
    let (mut text_remaining, mut remaining) = (text_bytes, max_bytes);
    for block in &mut result.content {
        let size = block_bytes(block);
        let limit = if is_text(block) { text_remaining.min(remaining) } else { remaining };
        if size > limit {
            let text = match block {
                ContentBlock::Text { text } => truncate_text(text, limit),
                _ => format!("[content left out — {size} bytes]"),
            };
            *block = ContentBlock::Text { text };
        }
        let size = block_bytes(block);
        remaining = remaining.saturating_sub(size);
        if is_text(block) {
            text_remaining = text_remaining.saturating_sub(size);
        }
    }
}

/// Size reserved for the note, so that truncated text is not truncated again.
const NOTE_BYTES: usize = 80;

fn truncate_text(text: &str, max_bytes: usize) -> String {
    let keep = text.floor_char_boundary(max_bytes.saturating_sub(NOTE_BYTES));
    let omitted = text[keep..].chars().count();
    format!("{}\n[result truncated — {omitted} chars omitted]", &text[..keep])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_at_char_boundary() {
        let mut result = ToolResult::text("ü".repeat(100));
        truncate(&mut result, NOTE_BYTES + 5, 1000);
        assert_eq!(result.to_text(), "üü\n[result truncated — 98 chars omitted]");
        let once = result.clone();
        truncate(&mut result, NOTE_BYTES + 5, 1000);
        assert_eq!(result, once, "truncated text fits");
    }

    #[test]
    fn image_may_exceed_text_limit() {
        let image = ContentBlock::Image { data: "x".repeat(900), mime_type: "image/png".into() };
        let mut result = ToolResult::text("short");
        result.content.push(image.clone());
        let whole = result.clone();
        truncate(&mut result, 100, 1000);
        assert_eq!(result, whole);
        result.content[0] = ContentBlock::Text { text: "x".repeat(101) };
        truncate(&mut result, 100, 1000);
        assert!(result.to_text().contains("chars omitted]"));
        assert_eq!(result.content[1], image);
    }

    #[test]
    fn oversized_image_is_omitted() {
        let image = ContentBlock::Image { data: "x".repeat(100), mime_type: "image/png".into() };
        let mut result = ToolResult { content: vec![image], ..ToolResult::default() };
        truncate(&mut result, 50, 50);
        assert_eq!(result.to_text(), "[content left out — 100 bytes]");
    }
}
