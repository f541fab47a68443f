//! No result is larger than the bus and a model can take.

use rockbot_contracts::ContentBlock;
use tower_layer::Layer;

use super::{CallService, ResolvedCall};
use crate::{failure::ToolFailure, result::ToolResult};

/// Puts [`SizeCap`] around a service.
#[derive(Debug, Clone, Copy)]
pub struct SizeCapLayer {
    /// Most bytes of content.
    pub max_bytes: usize,
}

impl<S> Layer<S> for SizeCapLayer {
    type Service = SizeCap<S>;

    fn layer(&self, inner: S) -> SizeCap<S> {
        SizeCap { max_bytes: self.max_bytes, inner }
    }
}

/// Cuts text that is over the cap, and says so in its place; leaves out a picture, sound or
/// resource that does not fit, since half of one is of no use.
#[derive(Debug, Clone)]
pub struct SizeCap<S> {
    max_bytes: usize,
    inner: S,
}

impl<S: CallService<ResolvedCall>> CallService<ResolvedCall> for SizeCap<S> {
    async fn call(&self, call: ResolvedCall) -> Result<ToolResult, ToolFailure> {
        let mut result = self.inner.call(call).await?;
        if result.bytes() > self.max_bytes {
            cut(&mut result, self.max_bytes);
        }
        // Facts for programs share the limit; there is no sense in half of them.
        if result.details.as_ref().is_some_and(|details| details.to_string().len() > self.max_bytes)
        {
            result.details = None;
        }
        Ok(result)
    }
}

fn cut(result: &mut ToolResult, max_bytes: usize) {
    let mut left = max_bytes;
    for block in &mut result.content {
        let size = crate::result::block_bytes(block);
        if size <= left {
            left -= size;
            continue;
        }
        let text = match block {
            ContentBlock::Text { text } => cut_text(text, left),
            _ => format!("[content left out — {size} bytes]"),
        };
        left = left.saturating_sub(text.len());
        *block = ContentBlock::Text { text };
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
        cut(&mut result, NOTE_BYTES + 5);
        assert_eq!(result.to_text(), "üü\n[result truncated — 98 chars omitted]");
        let once = result.clone();
        cut(&mut result, NOTE_BYTES + 5);
        assert_eq!(result, once, "what was cut fits");
    }

    #[test]
    fn a_picture_fits_or_goes() {
        let picture = ContentBlock::Image { data: "x".repeat(100), mime_type: "image/png".into() };
        let mut result = ToolResult { content: vec![picture], ..ToolResult::default() };
        cut(&mut result, 50);
        assert_eq!(result.to_text(), "[content left out — 100 bytes]");
    }
}
