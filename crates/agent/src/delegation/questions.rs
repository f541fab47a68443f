//! Questions of agents about the tasks that were delegated to them: a turn answers, or passes the question on to
//! the user.

use std::sync::Arc;

use rockbot_contracts::{MessageId, TaskId, TaskState, user::TurnOutcome};
use rockbot_store::StoreError;
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};

use super::{
    frame::question_text,
    record::{TaskKind, TaskRecord},
    run::cut,
    store::{FoldReason, FoldRecord},
    tasks::{Attached, Delegation},
};
use crate::derived_id::derived_id;

/// Maximum number of questions about one task.
const MAX_ROUNDS: u32 = 20;
/// Times that the same question may be asked.
const MAX_REPEATS: usize = 3;
/// Longest question, in bytes.
const MAX_QUESTION_BYTES: usize = 16 * 1024;
/// Length of the hash of a question.
const DIGEST_CHARS: usize = 16;

/// Returns a hash of a question, which ignores case and spaces.
pub(super) fn digest(question: &str) -> String {
    let words: Vec<_> = question.split_whitespace().map(str::to_lowercase).collect();
    derived_id(&[&words.join(" ")], DIGEST_CHARS)
}

impl Delegation {
    /// Runs the turn that reads the open question of a task, and sends its answer to the agent, unless the turn
    /// passed the question on to the user. Returns `false` if another process must do it.
    pub(super) async fn read_question(
        self: &Arc<Self>,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<bool, StoreError> {
        let Some(peer) = record.peer.as_deref() else { return Ok(true) };
        let round = peer.round;
        if let Some(text) = refusal(record) {
            self.give_up(attached, record, text).await?;
            return Ok(true);
        }
        let message = question_message(&record.task, round);
        let text = question_text(record, peer);
        let fold = FoldRecord::about(record, message, text, FoldReason::Question);
        let fold = self.decide_once(attached, &record.root, fold).await?;
        let Some(answer) = self.run_turn_on(attached, &record.root, &fold).await? else {
            return Ok(false);
        };
        let Some(now) = attached.store.get(&record.task).await? else { return Ok(true) };
        let is_passed_on = now.peer.as_ref().is_some_and(|peer| peer.asked_person == round);
        if is_passed_on {
            self.send_answer(attached, &record.root, &fold, answer).await?;
            let read = attached.store.update(&record.task, |record| {
                let Some(peer) = record.peer.as_mut().filter(|peer| peer.round == round) else {
                    return false;
                };
                peer.read_question = round;
                true
            });
            read.await?;
            return Ok(true);
        }
        let has_answer = matches!(
            answer.outcome,
            TurnOutcome::Completed | TurnOutcome::IterationLimit | TurnOutcome::BudgetExceeded
        );
        if !has_answer || answer.text.trim().is_empty() {
            self.give_up(attached, record, "There was no answer to the question of the agent.")
                .await?;
            return Ok(true);
        }
        let id = answer_message(&record.task, round);
        self.answer_agent(attached, &record.task, round, &answer.text, id).await?;
        Ok(true)
    }

    /// Sends the answer to the question number `round`. Returns `false` if it is no longer open.
    pub(super) async fn answer_agent(
        self: &Arc<Self>,
        attached: &Attached,
        task: &TaskId,
        round: u32,
        text: &str,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        let answered = attached.store.update(task, |record| {
            let is_open = record.state == TaskState::InputRequired;
            let Some(peer) = record.peer.as_mut().filter(|peer| is_open && peer.round == round)
            else {
                return false;
            };
            peer.question = None;
            peer.read_question = round;
            peer.was_retried = false;
            peer.data = None;
            peer.message = id.clone();
            record.text = cut(text);
            record.state = TaskState::Submitted;
            true
        });
        let answered = answered.await?;
        self.changed.notify_waiters();
        let is_answered =
            answered.is_some_and(|record| record.peer.is_some_and(|peer| peer.message == id));
        if is_answered {
            self.start(TaskKind::Sent, task.clone(), None);
        }
        Ok(is_answered)
    }

    /// Passes the open question of the task whose turn makes the call on to the user.
    pub(super) async fn ask_person(
        self: &Arc<Self>,
        question: &str,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        check_question(question)?;
        let attached = self.caller(&context.agent)?;
        let turn = self.turn(&context.session_id).map(|turn| turn.message);
        let records = attached.store.of_session(&context.session_id).await?;
        let asked = records.into_iter().find_map(|record| {
            let round = record.peer.as_ref()?.round;
            let is_asked = turn.as_ref() == Some(&question_message(&record.task, round));
            (is_asked && record.state == TaskState::InputRequired).then_some((record.task, round))
        });
        let Some((task, round)) = asked else { return Err(not_open()) };
        let passed_on = attached.store.update(&task, |record| {
            let is_open = record.state == TaskState::InputRequired;
            let Some(peer) = record.peer.as_mut().filter(|peer| is_open && peer.round == round)
            else {
                return false;
            };
            peer.asked_person = round;
            true
        });
        let is_asked = |record: TaskRecord| {
            let is_open = record.state == TaskState::InputRequired;
            is_open && record.peer.is_some_and(|peer| peer.asked_person == round)
        };
        if !passed_on.await?.is_some_and(is_asked) {
            return Err(not_open());
        }
        Ok(ToolResult::text(format!(
            "Your answer is shown to the user, and not sent to the agent. End your turn with the question for the \
             user. When the user has answered, call invoke_agent with task_id {task}."
        )))
    }

    /// Ends a task that asks too much, at the agent too.
    async fn give_up(
        self: &Arc<Self>,
        attached: &Attached,
        record: &TaskRecord,
        text: &str,
    ) -> Result<(), StoreError> {
        if let Some(peer) = record.peer.as_deref() {
            self.cancel_at_agent(peer).await;
        }
        self.end_here(attached, record, TaskState::Failed, text).await?;
        Ok(())
    }
}

fn not_open() -> ToolFailure {
    let reason = "the question is no longer open; end your turn".to_owned();
    ToolFailure::NotPermitted { reason }
}

/// Checks the question of a call.
pub(super) fn check_question(question: &str) -> Result<(), ToolFailure> {
    if question.trim().is_empty() || question.len() > MAX_QUESTION_BYTES {
        return Err(ToolFailure::invalid("question must have 1 byte to 16 KiB"));
    }
    Ok(())
}

/// Returns why a question is not read.
fn refusal(record: &TaskRecord) -> Option<&'static str> {
    let peer = record.peer.as_deref()?;
    if peer.round > MAX_ROUNDS || peer.questions.len() > MAX_ROUNDS as usize {
        return Some("The agent asked more than 20 questions. The task was cancelled.");
    }
    let last = peer.questions.last()?;
    let repeats = peer.questions.iter().filter(|one| *one == last).count();
    (repeats >= MAX_REPEATS)
        .then_some("The agent asked the same question three times. The task was cancelled.")
}

/// Returns the id of the message with a question.
fn question_message(task: &TaskId, round: u32) -> MessageId {
    message_id(&["question", task.as_str(), &round.to_string()])
}

/// Returns the id of the message with the answer to a question.
fn answer_message(task: &TaskId, round: u32) -> MessageId {
    message_id(&["answer", task.as_str(), &round.to_string()])
}

fn message_id(parts: &[&str]) -> MessageId {
    FoldRecord::message_of(parts).unwrap_or_else(MessageId::generate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_question_is_recognized_despite_case_and_spaces() {
        assert_eq!(digest("Which  quarter?\n"), digest("which quarter?"));
        assert_ne!(digest("Which quarter?"), digest("Which year?"));
    }
}
