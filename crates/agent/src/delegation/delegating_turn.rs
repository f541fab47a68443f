//! Turns that run in this process and may hand work over.

use rockbot_contracts::{MessageId, RoutingKey};

use crate::{conversation::MessageEntry, origin::TurnOrigin};

/// Longest text of a user that a sub-agent reads, in bytes.
const MAX_WORDS_BYTES: usize = 4 * 1024;

/// Facts that a running turn passes on with work that it hands over.
#[derive(Debug, Clone)]
pub(crate) struct HandingOver {
    pub(super) message: MessageId,
    pub(super) reply_to: Option<RoutingKey>,
    pub(super) sender: Option<String>,
    /// Number of turns on results since the last message of a user.
    pub(super) generation: u32,
    /// The text of the user.
    pub(super) words: String,
    /// The turn is itself handed over work, or a call waits for it: it waits for what it hands to others.
    pub(super) is_awaited: bool,
}

impl HandingOver {
    pub(crate) fn from_turn(message: &MessageEntry, origin: &TurnOrigin) -> Self {
        let cut = message.text.floor_char_boundary(MAX_WORDS_BYTES);
        Self {
            message: message.id.clone(),
            reply_to: message.reply_to.clone(),
            sender: message.sender.clone(),
            generation: origin.fold_back().map_or(0, |fold| fold.generation),
            words: message.text[..cut].to_owned(),
            is_awaited: origin.parent.is_some() || origin.task().is_some() || origin.step.is_some(),
        }
    }
}
