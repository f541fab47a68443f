//! Replies that arrive while the user answers a question.

use std::{collections::VecDeque, future::pending};

use rockbot_agent::{Replies, ReplyError};
use rockbot_contracts::{AgentReply, ReplyBody};

/// The maximum number of replies that are held. The stream keeps further ones, within its own limit.
const MAX_HELD: usize = 4096;

/// The replies to a message. Those that arrive during a question are held until it is answered.
pub(super) struct HeldReplies {
    replies: Replies,
    held: VecDeque<Result<AgentReply, ReplyError>>,
    is_over: bool,
}

impl HeldReplies {
    pub(super) fn new(replies: Replies) -> Self {
        Self { replies, held: VecDeque::new(), is_over: false }
    }

    /// Returns the next reply: a held one, or the next that arrives. `None` is the end.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<AgentReply, ReplyError>> {
        match self.held.pop_front() {
            Some(reply) => Some(reply),
            None if self.is_over => None,
            None => self.replies.next().await,
        }
    }

    /// Holds replies until one closes `question` or ends the turn.
    ///
    /// # Cancellation
    /// Cancel-safe.
    pub(super) async fn hold_until_closed(&mut self, question: &ReplyBody) {
        while self.held.len() < MAX_HELD && !self.is_over {
            let Some(reply) = self.replies.next().await else {
                self.is_over = true;
                return;
            };
            let closes = match &reply {
                Ok(reply) => closes(&reply.body, question),
                Err(_) => true,
            };
            self.held.push_back(reply);
            if closes {
                return;
            }
        }
        pending::<()>().await;
    }

    /// Returns the number of lost replies.
    pub(super) fn lost(&self) -> u64 {
        self.replies.lost()
    }
}

/// Returns whether no answer to the question is awaited after this reply.
fn closes(reply: &ReplyBody, question: &ReplyBody) -> bool {
    match (reply, question) {
        (
            ReplyBody::ApprovalClosed { approval_id: closed, .. },
            ReplyBody::ApprovalAsked { approval_id, .. },
        ) => closed == approval_id,
        (
            ReplyBody::InputClosed { input_id: closed, .. },
            ReplyBody::InputAsked { input_id, .. },
        ) => closed == input_id,
        // Another process repeats its questions.
        (ReplyBody::Answer { .. } | ReplyBody::Resumed { .. }, _) => true,
        _ => false,
    }
}
