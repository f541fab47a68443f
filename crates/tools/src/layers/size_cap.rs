//! No result is larger than the bus and a model can take.

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

/// Keeps text that is too long and gives a handle in its place. Where it can't be kept, cuts it and
/// says so. Leaves out a picture, sound or resource that does not fit, since half of one is of no
/// use.
#[derive(Debug, Clone)]
pub struct SizeCap<S> {
    /// Most bytes of content.
    max_bytes: usize,
    /// Where text that is too long is kept, if it is.
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
        // What reads kept outputs is short by itself; another handle in its place would lead nowhere.
        let reads_outputs = call.tool.registration().name == TOOL_OUTPUT;
        let outputs = outputs.as_ref().filter(|_| !reads_outputs);
        let shown = outputs.map_or(*max_bytes, |outputs| outputs.shown_bytes(*max_bytes));
        let context = outputs.map(|_| Box::new(call.context.clone()));
        let mut result = self.inner.call(call).await?;
        let texts = result.content.iter().filter(|block| is_text(block));
        if texts.map(block_bytes).sum::<usize>() > shown
            && let Some((outputs, context)) = outputs.zip(context)
        {
            Box::pin(keep(&mut result, outputs, &context)).await;
        }
        cut(&mut result, shown, *max_bytes);
        // Facts for programs share the limit; there is no sense in half of them.
        if result.details.as_ref().is_some_and(|details| details.to_string().len() > *max_bytes) {
            result.details = None;
        }
        Ok(result)
    }
}

fn is_text(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Text { .. } | ContentBlock::Resource { text: Some(_), .. })
}

/// Puts a handle in the place of all text, if it can be kept.
async fn keep(result: &mut ToolResult, outputs: &Outputs, context: &ToolContext) {
    let (texts, others): (Vec<_>, Vec<_>) = result.content.iter().cloned().partition(is_text);
    let text = ToolResult { content: texts, ..ToolResult::default() }.to_text().into_owned();
    match outputs.keep(context, text).await {
        Ok(kept) => {
            result.content = vec![ContentBlock::Text { text: kept.message }];
            result.content.extend(others);
        }
        Err(error) => {
            let (tool_call_id, tool) = (&context.tool_call_id, &context.tool_name);
            warn!(%tool_call_id, %tool, %error, "a large output can't be kept, so it is cut");
        }
    }
}

/// Cuts text that is over so many bytes, and what is over `max_bytes` with it; what fits stays as it
/// is.
fn cut(result: &mut ToolResult, text_bytes: usize, max_bytes: usize) {
    let (mut text_left, mut left) = (text_bytes, max_bytes);
    for block in &mut result.content {
        let size = block_bytes(block);
        let room = if is_text(block) { text_left.min(left) } else { left };
        if size > room {
            let text = match block {
                ContentBlock::Text { text } => cut_text(text, room),
                _ => format!("[content left out — {size} bytes]"),
            };
            *block = ContentBlock::Text { text };
        }
        let size = block_bytes(block);
        left = left.saturating_sub(size);
        if is_text(block) {
            text_left = text_left.saturating_sub(size);
        }
    }
}

/// Room for the note about what is missing, so that a result that was cut once fits everywhere.
const NOTE_BYTES: usize = 80;

fn cut_text(text: &str, max_bytes: usize) -> String {
    let keep = text.floor_char_boundary(max_bytes.saturating_sub(NOTE_BYTES));
    let omitted = text[keep..].chars().count();
    format!("{}\n[result truncated — {omitted} chars omitted]", &text[..keep])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character_and_says_how_much_is_missing() {
        let mut result = ToolResult::text("ü".repeat(100));
        cut(&mut result, NOTE_BYTES + 5, 1000);
        assert_eq!(result.to_text(), "üü\n[result truncated — 98 chars omitted]");
        let once = result.clone();
        cut(&mut result, NOTE_BYTES + 5, 1000);
        assert_eq!(result, once, "what was cut fits");
    }

    #[test]
    fn a_picture_has_the_room_that_text_may_not_have() {
        let picture = ContentBlock::Image { data: "x".repeat(900), mime_type: "image/png".into() };
        let mut result = ToolResult::text("short");
        result.content.push(picture.clone());
        let whole = result.clone();
        cut(&mut result, 100, 1000);
        assert_eq!(result, whole);
        result.content[0] = ContentBlock::Text { text: "x".repeat(101) };
        cut(&mut result, 100, 1000);
        assert!(result.to_text().contains("chars omitted]"));
        assert_eq!(result.content[1], picture);
    }

    #[test]
    fn a_picture_fits_or_goes() {
        let picture = ContentBlock::Image { data: "x".repeat(100), mime_type: "image/png".into() };
        let mut result = ToolResult { content: vec![picture], ..ToolResult::default() };
        cut(&mut result, 50, 50);
        assert_eq!(result.to_text(), "[content left out — 100 bytes]");
    }
}
