//! Replies of an agent, for tests.

use rockbot_contracts::{
    AgentName, AgentReply, MessageId, ReplyBody, SessionId, user::TurnOutcome,
};

/// Returns a reply; an answer is the final one.
pub(crate) fn reply(sequence: u64, body: ReplyBody) -> AgentReply {
    AgentReply {
        session_id: SessionId::generate(),
        in_reply_to: MessageId::generate(),
        agent: AgentName::new("assistant").unwrap(),
        sequence,
        is_final: matches!(body, ReplyBody::Answer { .. }),
        body,
    }
}

pub(crate) fn delta(text: &str) -> AgentReply {
    reply(1, ReplyBody::TextDelta { text: text.to_owned() })
}

pub(crate) fn answer(text: &str, outcome: TurnOutcome) -> AgentReply {
    reply(9, ReplyBody::Answer { text: text.to_owned(), outcome, usage: None })
}
