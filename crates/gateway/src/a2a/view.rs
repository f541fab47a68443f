//! A task as its client sees it: the replies of a turn, as states, artifacts and events.

use rockbot_contracts::{AgentReply, ApprovalId, MessageId, ReplyBody, user::TurnOutcome};
use serde_json::{Value, json};

use super::{
    error::A2aError,
    state::{TaskEnd, TaskState},
};
use crate::{clock::now_ms, turns::Followed};

/// Longest text that is kept of an answer that is still written, in bytes. The whole answer follows at its end.
const MAX_STEP_BYTES: usize = 1024 * 1024;
/// Longest shown name or progress, in characters.
const MAX_SHOWN_CHARS: usize = 500;
/// Id and name of the only artifact of a task.
const ANSWER: &str = "answer";

/// An open approval request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenApproval {
    pub(super) id: ApprovalId,
    pub(super) call_hash: String,
    parts: Value,
}

/// A task, as far as its replies have been read.
#[derive(Debug)]
pub(super) struct TaskView {
    task: MessageId,
    context: String,
    state: TaskState,
    /// Message of the status.
    message: Option<Value>,
    ended_ms: Option<u64>,
    detail: Option<String>,
    /// Text since the last tool call; the whole answer at the end.
    step: String,
    /// Set if the client has a part of the step.
    has_chunk: bool,
    approvals: Vec<OpenApproval>,
}

impl TaskView {
    /// Creates the view of a task without replies.
    pub(super) fn new(task: MessageId, context: String) -> Self {
        Self {
            task,
            context,
            state: TaskState::Submitted,
            message: None,
            ended_ms: None,
            detail: None,
            step: String::new(),
            has_chunk: false,
            approvals: Vec::new(),
        }
    }

    /// Sets the state of a task whose agent has its message.
    pub(super) fn begun(mut self) -> Self {
        self.state = TaskState::Working;
        self
    }

    /// Sets a recorded end.
    pub(super) fn ended(mut self, end: TaskEnd) -> Self {
        let TaskEnd { state, at_ms, detail } = end;
        (self.state, self.ended_ms) = (state, Some(at_ms));
        self.message = detail.as_deref().map(|detail| self.text_message("end", detail));
        self.detail = detail;
        self
    }

    /// Sets the time of the end to a recorded one.
    pub(super) fn set_ended_ms(&mut self, ended_ms: u64) {
        self.ended_ms = Some(ended_ms);
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.task
    }

    pub(super) fn state(&self) -> TaskState {
        self.state
    }

    /// Returns whether a client that waits gets the task now: it has ended, or needs the client.
    pub(super) fn is_interrupted(&self) -> bool {
        self.state.is_terminal() || self.state == TaskState::InputRequired
    }

    pub(super) fn approval(&self, id: &str) -> Option<&OpenApproval> {
        self.approvals.iter().find(|approval| approval.id.as_str() == id)
    }

    /// Returns the end, for the records.
    pub(super) fn end(&self) -> Option<TaskEnd> {
        let at_ms = self.ended_ms?;
        Some(TaskEnd { state: self.state, at_ms, detail: self.detail.clone() })
    }

    /// Returns the task without its artifacts.
    pub(super) fn summary(&self) -> Value {
        json!({"id": self.task, "contextId": self.context, "status": self.status()})
    }

    /// Returns the task.
    pub(super) fn to_json(&self) -> Value {
        let mut task = self.summary();
        if !self.step.is_empty() {
            let artifact = artifact(&self.step);
            task["artifacts"] = json!([artifact]);
        }
        task
    }

    /// Returns the event with the whole answer, if there is one.
    pub(super) fn answer_event(&self) -> Option<Value> {
        (!self.step.is_empty()).then(|| self.artifact_event(&self.step, false, true))
    }

    /// Applies what a follower received, and returns the events for a stream.
    ///
    /// # Errors
    /// When no final reply will come. The task may go on at the agent.
    pub(super) fn apply(&mut self, followed: Followed) -> Result<Vec<Value>, A2aError> {
        match followed {
            Followed::Reply(reply) => Ok(self.reply(&reply)),
            // Text that is missing makes the answer replace what was streamed.
            Followed::Lost(_) => Ok(Vec::new()),
            Followed::Failed(error) => Err(error.into()),
        }
    }

    fn reply(&mut self, reply: &AgentReply) -> Vec<Value> {
        let mut events = Vec::new();
        if self.state == TaskState::Submitted && !reply.is_final {
            self.state = TaskState::Working;
            events.push(self.status_event());
        }
        match &reply.body {
            ReplyBody::TextDelta { text } => events.extend(self.chunk(text)),
            ReplyBody::ToolStarted { tool_name, .. } => {
                self.restart();
                events.push(self.progress(reply, &format!("calls the tool {tool_name}")));
            }
            ReplyBody::TaskStatus { now, .. } if !now.is_empty() => {
                events.push(self.progress(reply, now));
            }
            ReplyBody::Resumed { .. } => {
                self.restart();
                events.push(self.progress(reply, "another process continues the turn"));
            }
            ReplyBody::ApprovalAsked { .. } => events.extend(self.ask(reply)),
            ReplyBody::ApprovalClosed { approval_id, .. } => {
                self.approvals.retain(|approval| approval.id != *approval_id);
                self.show_approval(reply);
                events.push(self.status_event());
            }
            ReplyBody::Answer { text, outcome, .. } => {
                events.extend(self.answer(reply, text, *outcome));
            }
            // Nothing that a client has to know.
            _ => {}
        }
        events
    }

    /// Drops text that is no part of the answer.
    fn restart(&mut self) {
        self.step.clear();
        self.has_chunk = false;
    }

    fn chunk(&mut self, text: &str) -> Option<Value> {
        if text.is_empty() || self.step.len() + text.len() > MAX_STEP_BYTES {
            return None;
        }
        self.step.push_str(text);
        let append = std::mem::replace(&mut self.has_chunk, true);
        Some(self.artifact_event(text, append, false))
    }

    /// Returns the event for the progress of a running task.
    fn progress(&mut self, reply: &AgentReply, text: &str) -> Value {
        let message = self.text_message(reply.sequence, &shown(text));
        if self.state == TaskState::Working {
            self.message = Some(message.clone());
        }
        let status = json!({"state": self.state, "message": message});
        self.event("statusUpdate", json!({"status": status}))
    }

    fn ask(&mut self, reply: &AgentReply) -> Option<Value> {
        let ReplyBody::ApprovalAsked {
            approval_id,
            tool_name,
            tool_source,
            arguments,
            arguments_left_out,
            call_hash,
            expires_in_ms,
            ..
        } = &reply.body
        else {
            return None;
        };
        let line = format!(
            "The call of the tool {} needs approval within {} s.",
            shown(tool_name),
            expires_in_ms / 1000
        );
        let details = json!({
            "approvalId": approval_id,
            "toolName": tool_name,
            "toolSource": tool_source,
            "arguments": arguments,
            "argumentsLeftOut": arguments_left_out,
            "callHash": call_hash,
            "expiresInMs": expires_in_ms,
        });
        let parts = json!([{"text": line}, {"data": details}]);
        let (id, call_hash) = (approval_id.clone(), call_hash.clone());
        self.approvals.retain(|approval| approval.id != id);
        self.approvals.push(OpenApproval { id, call_hash, parts });
        self.show_approval(reply);
        Some(self.status_event())
    }

    /// Shows the latest of the open approval requests.
    fn show_approval(&mut self, reply: &AgentReply) {
        let asked = self.approvals.last().map(|approval| approval.parts.clone());
        self.state = if asked.is_some() { TaskState::InputRequired } else { TaskState::Working };
        self.message = asked.map(|parts| self.message(reply.sequence, &parts));
    }

    fn answer(&mut self, reply: &AgentReply, text: &str, outcome: TurnOutcome) -> Vec<Value> {
        self.state = match outcome {
            TurnOutcome::Cancelled => TaskState::Canceled,
            TurnOutcome::ModelFailed => TaskState::Failed,
            TurnOutcome::Overloaded | TurnOutcome::Expired => TaskState::Rejected,
            TurnOutcome::Completed
            | TurnOutcome::IterationLimit
            | TurnOutcome::BudgetExceeded
            | TurnOutcome::ToolTimeouts
            | TurnOutcome::Other => TaskState::Completed,
        };
        self.ended_ms = Some(now_ms());
        self.approvals.clear();
        self.message = None;
        let mut events = Vec::new();
        if self.state == TaskState::Completed {
            events.extend(self.last_chunk(text));
            text.clone_into(&mut self.step);
        } else {
            self.restart();
            self.detail = (!text.is_empty()).then(|| text.to_owned());
            let message = self.detail.as_deref();
            self.message = message.map(|text| self.text_message(reply.sequence, text));
        }
        events.push(self.status_event());
        events
    }

    /// Returns the event that completes the artifact: the rest of the answer, or all of it.
    fn last_chunk(&self, text: &str) -> Option<Value> {
        let rest = text.strip_prefix(self.step.as_str()).filter(|_| self.has_chunk);
        match rest {
            Some(rest) => Some(self.artifact_event(rest, true, true)),
            None if text.is_empty() => None,
            None => Some(self.artifact_event(text, false, true)),
        }
    }

    fn artifact_event(&self, text: &str, append: bool, is_last: bool) -> Value {
        let fields = json!({"artifact": artifact(text), "append": append, "lastChunk": is_last});
        self.event("artifactUpdate", fields)
    }

    fn status_event(&self) -> Value {
        self.event("statusUpdate", json!({"status": self.status()}))
    }

    fn event(&self, kind: &str, mut fields: Value) -> Value {
        fields["taskId"] = json!(self.task);
        fields["contextId"] = json!(self.context);
        json!({kind: fields})
    }

    fn status(&self) -> Value {
        let mut status = json!({"state": self.state});
        if let Some(message) = &self.message {
            status["message"] = message.clone();
        }
        if let Some(at) = self.ended_ms.and_then(timestamp) {
            status["timestamp"] = json!(at);
        }
        status
    }

    fn text_message(&self, number: impl std::fmt::Display, text: &str) -> Value {
        self.message(number, &json!([{"text": text}]))
    }

    fn message(&self, number: impl std::fmt::Display, parts: &Value) -> Value {
        json!({
            "messageId": format!("{}-{number}", self.task),
            "taskId": self.task,
            "contextId": self.context,
            "role": "ROLE_AGENT",
            "parts": parts,
        })
    }
}

fn artifact(text: &str) -> Value {
    json!({"artifactId": ANSWER, "name": ANSWER, "parts": [{"text": text}]})
}

/// Returns a time in the form of the protocol.
fn timestamp(unix_ms: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?;
    Some(format!("{at:.3}"))
}

/// Returns the beginning of a text on one line.
fn shown(text: &str) -> String {
    let characters =
        text.chars().map(|character| if character.is_control() { ' ' } else { character });
    characters.take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rockbot_contracts::{InstanceId, ToolCallId};

    use super::*;
    use crate::test_replies;

    fn reply(sequence: u64, body: ReplyBody) -> Followed {
        Followed::Reply(Arc::new(test_replies::reply(sequence, body)))
    }

    fn delta(text: &str) -> Followed {
        Followed::Reply(Arc::new(test_replies::delta(text)))
    }

    fn answer(text: &str, outcome: TurnOutcome) -> Followed {
        Followed::Reply(Arc::new(test_replies::answer(text, outcome)))
    }

    fn view() -> TaskView {
        TaskView::new(MessageId::new("t").unwrap(), "c".to_owned())
    }

    /// Returns the artifact that a client has after these replies.
    fn streamed(replies: Vec<Followed>) -> String {
        let (mut view, mut text) = (view(), String::new());
        for reply in replies {
            for event in view.apply(reply).unwrap() {
                let Some(update) = event.get("artifactUpdate") else { continue };
                if update["append"] == false {
                    text.clear();
                }
                text += update["artifact"]["parts"][0]["text"].as_str().unwrap();
            }
        }
        assert_eq!(view.to_json()["artifacts"][0]["parts"][0]["text"], text.as_str());
        text
    }

    #[test]
    fn streamed_artifact_is_the_answer() {
        let done = || answer("Hi there.", TurnOutcome::Completed);
        let call = || {
            reply(
                2,
                ReplyBody::ToolStarted {
                    tool_call_id: ToolCallId::generate(),
                    tool_name: "bash".to_owned(),
                    arguments: "{}".to_owned(),
                    arguments_left_out: 0,
                },
            )
        };
        let resumed = || reply(3, ReplyBody::Resumed { on: InstanceId::generate(), attempt: 2 });
        let large = "x".repeat(MAX_STEP_BYTES);
        for replies in [
            vec![done()],
            vec![delta("Hi"), delta(" there."), done()],
            vec![delta("Hi"), done()],
            vec![delta("Hi"), Followed::Lost(1), delta("re."), done()],
            vec![delta("I look."), call(), delta("Hi there."), done()],
            vec![delta("Hi th"), resumed(), delta("Hi"), done()],
            vec![delta(&large), delta("y"), done()],
        ] {
            assert_eq!(streamed(replies), "Hi there.");
        }
        let whole = format!("{large}yy");
        let replies = vec![delta(&large), delta("y"), answer(&whole, TurnOutcome::Completed)];
        assert_eq!(streamed(replies), whole);
    }

    #[test]
    fn outcome_decides_the_state() {
        for (outcome, state) in [
            (TurnOutcome::Completed, TaskState::Completed),
            (TurnOutcome::IterationLimit, TaskState::Completed),
            (TurnOutcome::Cancelled, TaskState::Canceled),
            (TurnOutcome::ModelFailed, TaskState::Failed),
            (TurnOutcome::Overloaded, TaskState::Rejected),
            (TurnOutcome::Expired, TaskState::Rejected),
        ] {
            let mut view = view();
            view.apply(answer("why", outcome)).unwrap();
            let task = view.to_json();
            assert_eq!(task["status"]["state"], json!(state), "{outcome:?}");
            assert_eq!(task.get("artifacts").is_some(), state == TaskState::Completed);
            let said = task["status"]["message"]["parts"][0]["text"] == "why";
            assert_eq!(said, state != TaskState::Completed, "{task}");
            let restored = TaskView::new(MessageId::new("t").unwrap(), "c".to_owned());
            let restored = restored.ended(view.end().unwrap());
            assert_eq!(restored.to_json()["status"]["state"], task["status"]["state"]);
            assert_eq!(restored.to_json()["status"]["timestamp"], task["status"]["timestamp"]);
        }
    }

    #[test]
    fn progress_has_no_control_characters() {
        let mut view = view();
        let now = "a\u{1b}[2Jb".to_owned();
        let status = ReplyBody::TaskStatus {
            status: "in-progress".to_owned(),
            done: String::new(),
            pending: String::new(),
            now,
        };
        let events = view.apply(reply(1, status)).unwrap();
        let text = &events[1]["statusUpdate"]["status"]["message"]["parts"][0]["text"];
        assert_eq!(text, "a [2Jb");
    }
}
