//! Results of tools.

use std::borrow::Cow;

use rockbot_contracts::{CallStages, ContentBlock, Spending, outside_text::stripped};
use serde_json::Value;

/// The result of a call: content for the model and structured data for programs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// Content blocks for the model, in order.
    pub content: Vec<ContentBlock>,
    /// Structured data for programs. Never sent to a model.
    pub details: Option<Value>,
    /// Identifier of the sub-agent loop that the call ran.
    pub child_loop_id: Option<String>,
    /// Tokens and costs of that loop, charged to the calling loop.
    pub child_spending: Option<Box<Spending>>,
    /// `true` if the tool reported an error.
    pub is_error: bool,
    /// `true` if a later call may have a better result, so that this one is not cached. Used within the process that
    /// ran the tool.
    pub is_provisional: bool,
    /// Name of the process that ran the tool. Set by the requester.
    pub ran_on: Option<String>,
    /// Durations of the call's stages, as its handler reported them. Set by the requester.
    pub stages: Option<CallStages>,
}

impl ToolResult {
    /// Creates a result of plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentBlock::Text { text: text.into() }], ..Self::default() }
    }

    /// Creates an error reported by the tool, such as the output of a command that exited with 1.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Sets the structured data.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Returns the content as text: text blocks joined by a newline, a short note for any other block.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, str> {
        match self.content.as_slice() {
            [] => Cow::Borrowed(""),
            [only] => block_text(only),
            many => Cow::Owned(many.iter().map(block_text).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Removes terminal sequences and hidden characters from the content: it comes from outside, and a
    /// model reads it.
    #[must_use]
    pub fn without_hidden_text(mut self) -> Self {
        self.content.iter_mut().for_each(strip_block);
        self
    }

    /// Returns the size of the content, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.content.iter().map(block_bytes).sum()
    }
}

fn strip_block(block: &mut ContentBlock) {
    match block {
        ContentBlock::Text { text } => strip(text),
        ContentBlock::Image { mime_type, .. } | ContentBlock::Audio { mime_type, .. } => {
            strip(mime_type);
        }
        ContentBlock::Resource { uri, mime_type, text } => {
            strip(uri);
            mime_type.iter_mut().chain(text).for_each(strip);
        }
    }
}

fn strip(text: &mut String) {
    if let Cow::Owned(stripped) = stripped(text) {
        *text = stripped;
    }
}

fn block_text(block: &ContentBlock) -> Cow<'_, str> {
    match block {
        ContentBlock::Text { text } => Cow::Borrowed(text),
        ContentBlock::Image { data, mime_type } => {
            Cow::Owned(format!("[image {mime_type}, {} bytes of base64]", data.len()))
        }
        ContentBlock::Audio { data, mime_type } => {
            Cow::Owned(format!("[audio {mime_type}, {} bytes of base64]", data.len()))
        }
        ContentBlock::Resource { uri, text, .. } => match text {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(format!("[resource {uri}]")),
        },
    }
}

pub(crate) fn block_bytes(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => data.len(),
        ContentBlock::Resource { uri, text, .. } => {
            uri.len() + text.as_ref().map_or(0, String::len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_text_is_removed_from_every_block() {
        let hidden = "\u{1b}[31ma\u{200b}b\u{202e}";
        let text = || hidden.to_owned();
        let result = ToolResult {
            content: vec![
                ContentBlock::Text { text: text() },
                ContentBlock::Image { data: String::new(), mime_type: text() },
                ContentBlock::Audio { data: String::new(), mime_type: text() },
                ContentBlock::Resource { uri: text(), mime_type: Some(text()), text: Some(text()) },
                ContentBlock::Resource { uri: text(), mime_type: None, text: None },
            ],
            ..ToolResult::default()
        };
        let shown = format!("{:?}", result.without_hidden_text().content);
        assert_eq!(shown.matches("\"ab\"").count(), 7, "{shown}");
        assert!(!shown.contains("\\u{"), "{shown}");
    }
}
