//! What a tool hands back.

use std::borrow::Cow;

use rockbot_contracts::{ContentBlock, Spending};
use serde_json::Value;

/// Content for the model, facts for programs, and whether the tool says that it failed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// In order; what the model reads.
    pub content: Vec<ContentBlock>,
    /// For programs; never sent to a model.
    pub details: Option<Value>,
    /// The loop that a sub-agent ran.
    pub child_loop_id: Option<String>,
    /// What that loop took, for the account of whoever began it.
    pub child_spending: Option<Box<Spending>>,
    /// Whether the tool failed in its own words.
    pub is_error: bool,
    /// Which process ran it; filled in by the end that asked over the bus.
    pub ran_on: Option<String>,
}

impl ToolResult {
    /// A result of plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentBlock::Text { text: text.into() }], ..Self::default() }
    }

    /// A failure in the tool's own words, such as the output of a command that exited with 1.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Adds facts for programs.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The content as text: text blocks joined by a newline, a short note for anything else.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, str> {
        match self.content.as_slice() {
            [] => Cow::Borrowed(""),
            [only] => block_text(only),
            many => Cow::Owned(many.iter().map(block_text).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Size of the content, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.content.iter().map(block_bytes).sum()
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
