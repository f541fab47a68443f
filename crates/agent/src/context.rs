//! Additional context for the model, in a fixed order and with a budget for each part.
//!
//! | part | place | kept in the conversation |
//! |---|---|---|
//! | the definition's prompt and its documents | system prompt | |
//! | date and time zone | system prompt | |
//! | rules | system prompt | |
//! | instructions for the model | system prompt | |
//! | *the conversation* | | |
//! | memories | with the user message | yes |
//! | skills | with the user message | yes |
//! | results of scheduled tasks | with the user message | yes |
//! | instructions of tool handlers and MCP servers | with the user message | no |
//! | agents and MCP servers that may help | with the user message | no |
//! | keys in working memory | with the user message | no |
//!
//! Parts that change from turn to turn come after the conversation, so that model servers can reuse their
//! prompt cache. They are part of the user message, because many servers accept a system message only at
//! the start.

mod budget;
mod build;
mod clock;
mod static_text;

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, MessageId, SessionId};
use rockbot_tools::EntryPoint;

pub use self::{
    budget::ContextBudget,
    clock::{CurrentDate, TimeZoneSource},
};
pub(crate) use self::{
    build::{ContextBuilder, TurnContext},
    static_text::{StaticText, SystemPrompt},
};

/// A part of the context, in the order in which the model reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextPart {
    /// The definition's prompt and its documents.
    Profile,
    /// Date and time zone.
    Clock,
    /// Rules of the user.
    Rules,
    /// Instructions for models of this kind.
    Model,
    /// Memories that are relevant to the message and new to the conversation.
    Memories,
    /// Skills that are relevant to the message and new to the conversation.
    Skills,
    /// Results of scheduled tasks that were not reported to the user yet.
    ScheduledResults,
    /// Usage instructions from tool handlers and from MCP servers in use.
    Instructions,
    /// Agents and MCP servers that may help.
    Services,
    /// Keys in working memory.
    WorkingMemory,
}

impl ContextPart {
    /// Returns `true` if the part belongs to the system prompt.
    #[must_use]
    pub fn is_system(self) -> bool {
        self <= Self::Model
    }

    /// Returns `true` if the part is kept in the conversation.
    #[must_use]
    pub fn is_persistent(self) -> bool {
        matches!(self, Self::Memories | Self::Skills | Self::ScheduledResults)
    }
}

/// A request for the context of a turn.
#[derive(Debug, Clone, Copy)]
pub struct ContextRequest<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// The conversation.
    pub session: &'a SessionId,
    /// Id of the message that started the turn.
    pub id: &'a MessageId,
    /// The user message.
    pub message: &'a str,
    /// The reason for the turn.
    pub entry: EntryPoint,
    /// The sender of the message, as validated by the broker.
    pub user: Option<&'a str>,
    /// Replaces the system prompt of the agent.
    pub prompt: Option<&'a str>,
    /// Another process started the turn. Parts that are kept in the conversation are there already.
    pub is_continued: bool,
    /// User messages still in the model's history, each with the context of its turn.
    pub conversation: &'a [&'a str],
}

impl ContextRequest<'_> {
    /// Returns `true` if `line` is in the context of a message that is still in the history.
    #[must_use]
    pub fn has_line(&self, line: &str) -> bool {
        let line = build::escape_delimiters(line);
        self.conversation.iter().any(|message| message.contains(&line))
    }
}

/// A source of one part of the context.
pub trait ContextSource: Send + Sync + 'static {
    /// Returns the part.
    fn part(&self) -> ContextPart;

    /// Returns the text for a turn, or `None`. Called once per turn, concurrently with the other sources,
    /// with a time limit of two seconds.
    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>>;
}
