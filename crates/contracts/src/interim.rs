//! Messages that precede the reply to a request.

use crate::{mcp::McpInputAsked, message::Message, tool::ToolProgress};

/// Returns whether messages of this type precede the reply to a request.
#[must_use]
pub fn is_interim(message_type: &str) -> bool {
    [ToolProgress::TYPE, McpInputAsked::TYPE].contains(&message_type)
}
