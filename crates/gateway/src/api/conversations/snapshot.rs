//! The state of a conversation at one position of its events.

use rockbot_contracts::{MessageId, conversation::HistoryBody, conversation::HistoryItem};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    entry::ConversationView,
    event::ConversationEvent,
    history::{self, HistoryView},
    hub::{Hub, Position},
    records::Record,
    turns::{Conversation, Turns},
};
use crate::api::problem::Problem;

/// Largest size of the events in a snapshot, in bytes.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// A conversation: what was recorded, and the events of the turns without an answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    /// The conversation.
    conversation: ConversationView,
    /// Set if its viewer may only read it.
    read_only: bool,
    /// Recorded items, oldest first.
    history: Vec<HistoryView>,
    /// Set if there are more: the `from` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// Events of the turns without an answer; their items are not in the history.
    running: Vec<ConversationEvent>,
    /// Position of the snapshot: later events follow in the stream.
    last_event_id: String,
}

impl Snapshot {
    /// Returns the snapshot for viewers who may only read the conversation.
    pub(super) fn into_read_only(mut self) -> Self {
        for event in &mut self.running {
            event.body = event.body.read_only();
        }
        self.conversation.open_approvals = 0;
        self.read_only = true;
        self
    }
}

/// Reads a conversation from an item on.
pub(crate) async fn read(
    turns: &Turns,
    hub: &Hub,
    conversation: &Conversation,
    record: Record,
    from: u64,
) -> Result<Snapshot, Problem> {
    // Before the history is read: what happens meanwhile is in both, and is removed from the history.
    let running = turns.running(&conversation.session);
    let position = hub.now();
    let (mut items, next) = history::page(turns.client(), conversation, from).await?;
    // A short page may not be the last; only an empty one is.
    let next = next.filter(|_| !items.is_empty());
    let mut events = Vec::new();
    if let Some(start) = whole_start(&running) {
        let after = hub.after(&conversation.session, start, MAX_EVENT_BYTES);
        let after = after.unwrap_or_default().events;
        if !after.is_empty() {
            let ids: Vec<_> = running.into_iter().map(|(id, _)| id).collect();
            leave_out(&mut items, &ids);
            let seen = after.into_iter().take_while(|(at, _)| *at <= position);
            events = seen.map(|(_, event)| (*event).clone()).collect();
        }
    }
    let history = items.into_iter().map(Into::into).collect();
    Ok(Snapshot {
        conversation: ConversationView::new(&conversation.session, record, turns),
        read_only: false,
        history,
        next,
        running: events,
        last_event_id: hub.id_at(position),
    })
}

/// Returns the position before all events of the running turns; `None` if the beginning of one was missed.
fn whole_start(running: &[(MessageId, Option<Position>)]) -> Option<Position> {
    running.iter().map(|(_, start)| *start).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Removes the items of running turns: everything from the first of their messages on.
fn leave_out(items: &mut Vec<HistoryItem>, running: &[MessageId]) {
    let first = items.iter().position(|item| {
        matches!(&item.body, HistoryBody::Message { message_id: Some(id), .. } if running.contains(id))
    });
    if let Some(first) = first {
        items.truncate(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64, id: &str) -> HistoryItem {
        let message_id = MessageId::new(id).ok();
        let body = HistoryBody::Message { message_id, text: "x".to_owned() };
        HistoryItem { number, at_ms: None, body }
    }

    #[test]
    fn items_of_running_turns_are_left_out() {
        let answer = HistoryItem {
            number: 2,
            at_ms: None,
            body: HistoryBody::Summary { text: "y".to_owned() },
        };
        let mut items = vec![message(1, "a"), answer, message(3, "b"), message(4, "c")];
        leave_out(&mut items, &[MessageId::new("other").unwrap()]);
        assert_eq!(items.len(), 4);
        leave_out(&mut items, &[MessageId::new("b").unwrap()]);
        assert_eq!(items.len(), 2);
    }

    #[test]
    fn events_are_whole_only_if_all_beginnings_are_known() {
        let id = |text| MessageId::new(text).unwrap();
        let running = [(id("a"), Some(Position(7))), (id("b"), Some(Position(3)))];
        assert_eq!(whole_start(&running), Some(Position(3)));
        assert_eq!(whole_start(&[(id("a"), Some(Position(7))), (id("b"), None)]), None);
        assert_eq!(whole_start(&[]), None);
    }
}
