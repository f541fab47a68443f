//! Summaries of conversations, and their overview for people.

use std::time::SystemTime;

use rockbot_agent::{AgentClient, ConversationRequestError};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, SessionId, Spending,
    conversation::{ConversationState, ConversationSummary},
    envelope::unix_ms,
};

use crate::{failure::Failure, render};

/// Longest shown title, in characters.
const MAX_TITLE_CHARS: usize = 48;

/// Requests the summary of a conversation of an agent; without a session, of the one that was active last.
pub(crate) async fn request(
    client: &AgentClient,
    agent: &AgentName,
    session_id: Option<SessionId>,
) -> Result<ConversationSummary, Failure> {
    match client.request(agent, &ConversationRequest::Summary { session_id }).await? {
        ConversationResponse::Summary { conversation } => Ok(conversation),
        _ => Err(ConversationRequestError::UnexpectedResponse.into()),
    }
}

/// Formats a conversation as a table row, at the Unix time `now` in seconds.
pub(crate) fn row(conversation: &ConversationSummary, now: u64) -> Vec<String> {
    vec![
        render::clean(conversation.session_id.as_str()),
        title(conversation),
        render::ago(conversation.last_active_ms / 1000, now),
        conversation.turns.to_string(),
        cost(&conversation.usage),
        match conversation.state {
            ConversationState::Idle => "idle".to_owned(),
            ConversationState::Open => render::good("open"),
            ConversationState::Unreadable => render::bad("unreadable"),
            ConversationState::Other => "?".to_owned(),
        },
    ]
}

/// Returns the title on one short line.
pub(crate) fn title(conversation: &ConversationSummary) -> String {
    render::short_line(&conversation.title, MAX_TITLE_CHARS)
}

/// Formats the cost of a conversation; "?" if the price of no model call is known.
fn cost(usage: &Spending) -> String {
    match usage {
        Spending { model_calls: 0, .. } => "$0".to_owned(),
        usage if usage.unpriced_calls >= usage.model_calls => "?".to_owned(),
        usage => {
            let known = format!("${:.4}", usage.cost_micros as f64 / 1e6);
            if usage.unpriced_calls > 0 { format!("{known}+") } else { known }
        }
    }
}

/// Returns the time since a conversation was last active, for people.
pub(crate) fn last_active(conversation: &ConversationSummary) -> String {
    let now = unix_ms(SystemTime::now()) / 1000;
    render::ago(conversation.last_active_ms / 1000, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(title: &str, usage: Spending) -> ConversationSummary {
        ConversationSummary {
            session_id: SessionId::new("s").unwrap(),
            title: title.to_owned(),
            created_ms: 0,
            last_active_ms: 60_000,
            state: ConversationState::Idle,
            turns: 2,
            usage,
            open_message: None,
        }
    }

    #[test]
    fn row_has_one_clean_line() {
        let usage = Spending { model_calls: 2, cost_micros: 2300, ..Spending::default() };
        let row = row(&summary(&format!("a\u{1b}[2J\nb {}", "x".repeat(80)), usage), 120);
        assert!(row[1].starts_with("a b xx") && row[1].ends_with('…'), "{row:?}");
        assert_eq!((row[2].as_str(), row[4].as_str()), ("1 min ago", "$0.0023"));
    }

    #[test]
    fn unknown_prices_are_shown() {
        let cost = |model_calls, unpriced_calls| {
            let usage = Spending { model_calls, unpriced_calls, ..Spending::default() };
            cost(&usage)
        };
        assert_eq!(cost(0, 0), "$0");
        assert_eq!(cost(2, 2), "?");
        assert_eq!(cost(2, 1), "$0.0000+");
    }
}
