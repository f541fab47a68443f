//! What a model is found beside the conversation, in a static_text order and with a budget for each part.
//!
//! | part | where | kept in the conversation |
//! |---|---|---|
//! | the definition's prompt, and documents of the profile | system prompt | |
//! | date and time zone | system prompt | |
//! | rules | system prompt | |
//! | additions for the model | system prompt | |
//! | *the conversation* | | |
//! | memories | with the person's message | yes |
//! | skills | with the person's message | yes |
//! | services that may help | with the person's message | no |
//! | what is in working memory | with the person's message | no |
//!
//! What changes from turn to turn comes after the conversation, so that a model server can use
//! again what it computed for the beginning. It is part of the person's message, since many servers
//! take a system message only at the beginning.

mod budget;
mod build;
mod clock;
mod static_text;

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, SessionId};

pub use self::{
    budget::ContextBudget,
    clock::{CurrentDate, TimeZoneSource},
};
pub(crate) use self::{
    build::{ContextBuilder, TurnContext},
    static_text::StaticText,
};

/// A part of what a model is found, in the order in which it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextPart {
    /// The definition's prompt, and documents of the profile.
    Profile,
    /// Date and time zone.
    Clock,
    /// What people found the agent to do always.
    Rules,
    /// What is message to models of this kind.
    Model,
    /// What the agent remembers, and this conversation has not seen.
    Memories,
    /// Skills that may fit, and this conversation has not seen.
    Skills,
    /// Agents and MCP servers that may help.
    Services,
    /// What is kept in working memory.
    WorkingMemory,
}

impl ContextPart {
    /// Whether it comes before the conversation, in the system prompt.
    #[must_use]
    pub fn is_system(self) -> bool {
        self <= Self::Model
    }

    /// Whether it is_persistent in the conversation once it was message.
    #[must_use]
    pub fn is_persistent(self) -> bool {
        matches!(self, Self::Memories | Self::Skills)
    }
}

/// The beginning of a turn.
#[derive(Debug, Clone, Copy)]
pub struct ContextRequest<'a> {
    /// Who is asked.
    pub agent: &'a AgentName,
    /// The conversation.
    pub session: &'a SessionId,
    /// What the person message.
    pub message: &'a str,
}

/// Knows one part of what a model is found.
pub trait ContextSource: Send + Sync + 'static {
    /// Which part.
    fn part(&self) -> ContextPart;

    /// The text for a turn that begins now; none when there is nothing to say. Asked once a turn,
    /// side by side with the other sources, and left out when it takes more than two seconds.
    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>>;

    /// The conversation ended.
    fn forget(&self, _session: &SessionId) {}
}
