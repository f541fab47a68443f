//! Summaries of conversations.

use rockbot_contracts::{
    MessageId, SessionId,
    conversation::{ConversationState, ConversationSummary},
};
use rockbot_store::Timestamp;

use super::{
    entry::{ConversationEntry, RecordedEntry},
    fold::{Folded, Totals},
};

/// Returns the summary of a conversation that cannot be read.
pub(super) fn unreadable(session: SessionId, last_active: Timestamp) -> ConversationSummary {
    let state = ConversationState::Unreadable;
    ConversationSummary { state, ..summary(session, Totals::default(), None, last_active) }
}

/// Returns the summary of a conversation from its last entries; `None` if they do not suffice. `is_whole`:
/// `entries` are all entries of the conversation.
pub(super) fn from_end(
    session: &SessionId,
    entries: &[RecordedEntry],
    is_whole: bool,
    last_active: Timestamp,
) -> Option<ConversationSummary> {
    let mut totals = is_whole.then(Totals::default);
    let mut open = None;
    for recorded in entries {
        match &recorded.entry {
            ConversationEntry::Answer(answer) => {
                open = None;
                totals = Some(Totals {
                    spent: answer.usage.session,
                    turns: answer.turns,
                    title: answer.title.clone(),
                    created: answer.created,
                    ..Totals::default()
                });
            }
            ConversationEntry::Message(message) => {
                if let Some(totals) = &mut totals {
                    totals.turn_started(message, recorded.at);
                    open = Some(message.id.clone());
                }
            }
            _ => {}
        }
    }
    Some(summary(session.clone(), totals?, open, last_active))
}

/// Returns the summary of a conversation from its state.
pub(super) fn from_fold(
    session: SessionId,
    folded: &Folded,
    last_active: Timestamp,
) -> ConversationSummary {
    let open_message = folded.open.as_ref().map(|open| open.message.id.clone());
    let mut totals = folded.totals.clone();
    if let Some(open) = &folded.open {
        totals.spent += open.spent.turn;
    }
    summary(session, totals, open_message, last_active)
}

fn summary(
    session_id: SessionId,
    totals: Totals,
    open_message: Option<MessageId>,
    last_active: Timestamp,
) -> ConversationSummary {
    let Totals { spent, turns, title, created, .. } = totals;
    let is_open = open_message.is_some();
    ConversationSummary {
        session_id,
        title,
        created_ms: created,
        last_active_ms: u64::try_from(last_active.as_millis()).unwrap_or_default(),
        state: if is_open { ConversationState::Open } else { ConversationState::Idle },
        turns,
        usage: spent,
        open_message,
    }
}
