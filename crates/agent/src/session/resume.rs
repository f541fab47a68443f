//! Turns that another process began: they are resumed or cancelled.

use rockbot_contracts::user::TurnOutcome;
use tracing::warn;

use super::{
    Done, Session, TurnRequest, answer_of,
    state::{Standing, is_foreign},
    unprocessed, unread_answer,
};
use crate::{
    conversation::{ConversationError, OpenTurn, digest},
    event::TurnAnswer,
    message::{PendingMessage, RecordedMessage, Rejection, ResumeRequest},
};

impl Session {
    /// Cancels the open turn, if there is one. Returns `true` if a turn ran.
    pub(super) async fn cancel(&mut self, message: PendingMessage) -> bool {
        // The state may be older than the turns of other processes.
        self.state = None;
        let state = match self.load().await {
            Ok(state) => state,
            Err(error) => {
                message.answer(unprocessed(&error));
                return false;
            }
        };
        if is_foreign(state.starter.as_deref(), &message) {
            message.answer(Rejection::OtherUser.into());
            return false;
        }
        if let Standing::Answered(number) = state.standing(&message) {
            let answer = self.recorded_answer(number).await;
            message.answer(answer.unwrap_or_else(|error| unread_answer(&error)));
            return false;
        }
        if state.open.as_ref().is_none_or(|open| open.message.entry.is_handed_over()) {
            self.cancel_without_turn(message).await;
            return false;
        }
        let taken = async {
            let open = self.take_over().await?;
            if open.is_some() {
                self.record_cancel(&message).await?;
            }
            Ok(open)
        };
        match taken.await {
            Ok(Some(mut open)) => {
                open.is_cancelled = true;
                self.steering.join(message);
                let request = TurnRequest::unattended(&self.id, &open.message);
                self.turn(open, request, true).await;
                return true;
            }
            Ok(None) => self.cancel_without_turn(message).await,
            Err(error) => {
                self.state = None;
                message.answer(unprocessed(&error));
            }
        }
        false
    }

    /// Cancels the work that the conversation delegated.
    async fn cancel_without_turn(&self, message: PendingMessage) {
        let cancelled = match &self.setup.delegation {
            Some(delegation) => delegation.cancel_all(&self.id).await.text(),
            None => None,
        };
        message.answer(match cancelled {
            Some(text) => TurnAnswer::new(TurnOutcome::Cancelled, text),
            None => Rejection::NoRunningTurn.into(),
        });
    }

    /// Resumes the open turn, or returns an answer that was not published. Returns `true` if a turn ran.
    pub(super) async fn resume(&mut self, request: ResumeRequest) -> bool {
        match self.try_resume().await {
            Ok(Resumable::Turn(open)) => {
                let recorded = RecordedMessage {
                    id: open.message.id.clone(),
                    reply_to: open.message.reply_to.clone(),
                    session: self.id.clone(),
                    attempt: open.attempt,
                    text_digest: digest(&open.message.text),
                };
                let progress = (request.progress)(&recorded);
                let done = Done::Resume(recorded, request.done);
                let unattended = TurnRequest::unattended(&self.id, &open.message);
                let request = TurnRequest { progress: Some(progress), done, ..unattended };
                self.turn(*open, request, true).await;
                return true;
            }
            Ok(Resumable::Answer(recorded, answer)) => {
                let _ = request.done.send(Some((recorded, *answer)));
            }
            Ok(Resumable::Nothing) => request.decline(),
            Err(error) => {
                warn!(session_id = %self.id, %error, "conversation not resumed");
                self.state = None;
                request.decline();
            }
        }
        false
    }

    async fn try_resume(&mut self) -> Result<Resumable, ConversationError> {
        // The state may be older than the turns of other processes.
        self.state = None;
        let state = self.load().await?;
        match &state.open {
            Some(open) if open.message.entry.is_handed_over() => {
                return Ok(Resumable::Nothing);
            }
            Some(_) => {
                let open = self.take_over().await?;
                return Ok(open.map_or(Resumable::Nothing, |open| Resumable::Turn(Box::new(open))));
            }
            None => {}
        }
        for id in self.setup.conversations.marked(&self.id).await? {
            let known = self.load().await?.messages.get(&id).cloned();
            let Some(known) = known else {
                // Its process ended before it recorded the message, which is still in the queue.
                self.setup.conversations.unmark(&self.id, &id).await?;
                continue;
            };
            let Some(number) = known.answer else { continue };
            let entry = self.setup.conversations.answer(&self.id, number).await?;
            let recorded = RecordedMessage {
                id,
                reply_to: known.reply_to,
                session: self.id.clone(),
                attempt: entry.attempt.saturating_add(1),
                text_digest: known.digest,
            };
            return Ok(Resumable::Answer(recorded, Box::new(answer_of(entry))));
        }
        Ok(Resumable::Nothing)
    }
}

/// The part of a conversation that can be resumed.
enum Resumable {
    Turn(Box<OpenTurn>),
    Answer(RecordedMessage, Box<TurnAnswer>),
    Nothing,
}
