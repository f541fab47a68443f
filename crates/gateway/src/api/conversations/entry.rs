//! A conversation in a list.

use rockbot_contracts::SessionId;
use serde::Serialize;
use utoipa::ToSchema;

use super::{records::Record, turns::Turns};
use crate::api::schema::SpendingView;

/// Longest title, in characters.
pub(crate) const MAX_TITLE_CHARS: usize = 200;
/// Longest title that is taken from the first message, in characters.
const DERIVED_TITLE_CHARS: usize = 80;

/// A conversation of the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationView {
    /// Its id.
    pub(crate) id: String,
    /// The agent.
    pub(crate) agent: String,
    /// The title; empty before the first message.
    pub(crate) title: String,
    /// Time of its creation in Unix milliseconds.
    pub(crate) created_ms: u64,
    /// Time of its last message or answer in Unix milliseconds.
    pub(crate) last_active_ms: u64,
    /// `idle`, or `running` while a message has no answer.
    pub(crate) state: &'static str,
    /// Number of answered messages.
    pub(crate) turns: u64,
    /// Usage of all turns, once one was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<SpendingView>,
    /// Number of calls that wait for a decision.
    pub(crate) open_approvals: usize,
    /// Its share, while it is shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share_id: Option<String>,
}

impl ConversationView {
    pub(crate) fn new(session: &SessionId, record: Record, turns: &Turns) -> Self {
        let state = if turns.is_running(session) { "running" } else { "idle" };
        Self {
            id: session.to_string(),
            agent: record.agent.to_string(),
            title: record.title,
            created_ms: record.created_ms,
            last_active_ms: record.last_active_ms,
            state,
            turns: record.turns,
            usage: record.usage,
            open_approvals: turns.open_approvals(session),
            share_id: record.share.map(|share| share.id),
        }
    }
}

/// Returns the title that a first message gives.
pub(crate) fn derived_title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut title: String = line.chars().take(DERIVED_TITLE_CHARS).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    title
}

/// Returns a title without outer spaces; `None` if it is empty, too long, or has control characters.
pub(crate) fn valid_title(title: &str) -> Option<&str> {
    let title = title.trim();
    let is_valid = (1..=MAX_TITLE_CHARS).contains(&title.chars().count())
        && !title.chars().any(char::is_control);
    is_valid.then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_one_short_line() {
        assert_eq!(derived_title("  Tidy up\nnow"), "Tidy up");
        assert_eq!(derived_title(&"ü".repeat(81)), format!("{}…", "ü".repeat(80)));
        assert_eq!(valid_title(" a "), Some("a"));
        for invalid in ["", "  ", "a\nb", &"x".repeat(MAX_TITLE_CHARS + 1)] {
            assert_eq!(valid_title(invalid), None, "{invalid:?}");
        }
    }
}
