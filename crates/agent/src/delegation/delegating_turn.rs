//! Data of running turns that their delegated work needs.

use rockbot_contracts::{MessageId, RoutingKey};

use crate::{conversation::MessageEntry, origin::TurnOrigin};

/// Maximum length of the user's text that a sub-agent reads, in bytes.
const MAX_USER_TEXT_BYTES: usize = 4 * 1024;

/// Data of a running turn that is passed on with the work that it delegates.
#[derive(Debug, Clone)]
pub(crate) struct DelegatingTurn {
    pub(super) message: MessageId,
    pub(super) reply_to: Option<RoutingKey>,
    pub(super) sender: Option<String>,
    /// Number of turns on results since the last message of a user.
    pub(super) generation: u32,
    /// The text of the user.
    pub(super) user_text: String,
    /// The turn is itself delegated work, or a call waits for it: it waits for the results of its own tasks.
    pub(super) is_awaited: bool,
}

impl DelegatingTurn {
    pub(crate) fn from_turn(message: &MessageEntry, origin: &TurnOrigin) -> Self {
        let cut = message.text.floor_char_boundary(MAX_USER_TEXT_BYTES);
        Self {
            message: message.id.clone(),
            reply_to: message.reply_to.clone(),
            sender: message.sender.clone(),
            generation: origin.fold_back().map_or(0, |fold| fold.generation),
            user_text: message.text[..cut].to_owned(),
            is_awaited: origin.parent.is_some() || origin.task().is_some() || origin.step.is_some(),
        }
    }
}
