//! The record of delegated work.

use rockbot_contracts::{
    AgentName, Executed, MessageId, RoutingKey, SessionId, Spending, TaskId, TaskState,
    TaskSummary, ToolCallId, TraceContext, trace,
};
use rockbot_tools::{BudgetGrant, BudgetLimits, RecordedScope, ToolContext, scope::MAX_HANDOVERS};
use serde::{Deserialize, Serialize};

use super::delegating_turn::DelegatingTurn;
use crate::{
    conversation::{RECEIVED_TASK_PREFIX, SENT_TASK_PREFIX, SUBAGENT_PREFIX, TaskEntry, unix_ms},
    derived_id::derived_id,
};

/// Length of a task id in hexadecimal digits.
const ID_CHARS: usize = 12;
const MINUTE_MS: u64 = 60 * 1000;

/// Returns `true` for the conversation of delegated work.
pub(crate) fn is_task_session(session: &SessionId) -> bool {
    task_of(session).is_some()
}

/// Returns the work that a conversation does.
pub(super) fn task_of(session: &SessionId) -> Option<(TaskKind, TaskId)> {
    let kinds = [TaskKind::Subagent, TaskKind::Sent, TaskKind::Received].into_iter();
    let mut found = kinds.filter_map(|kind| {
        let id = session.as_str().strip_prefix(kind.session_prefix())?;
        Some((kind, TaskId::new(id).ok()?))
    });
    found.next()
}

/// Kinds of delegated work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskKind {
    /// A sub-agent of this agent does it.
    #[default]
    Subagent,
    /// Another agent of the bus does it.
    Sent,
    /// This agent does it for another one of the bus.
    Received,
}

impl TaskKind {
    const fn session_prefix(self) -> &'static str {
        match self {
            Self::Subagent => SUBAGENT_PREFIX,
            Self::Sent => SENT_TASK_PREFIX,
            Self::Received => RECEIVED_TASK_PREFIX,
        }
    }

    /// Returns the kind as a label of metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Subagent => "subagent",
            Self::Sent => "sent",
            Self::Received => "received",
        }
    }
}

/// The other agent of a task, and the exchange with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PeerTask {
    /// The agent that does the task, or that asked for it.
    pub(super) agent: AgentName,
    pub(super) skill: String,
    /// Id of the task at its caller, which messages carry. Of a sent task, the id of its record.
    pub(super) wire_task: TaskId,
    /// Address of the caller, of a received task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<RoutingKey>,
    /// Id of the message that is sent, or was received, last.
    pub(super) message: MessageId,
    /// Hashes of the messages that were received, with their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) received: Vec<String>,
    /// Hashes of the contents of these messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) contents: Vec<String>,
    /// Structured data of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<serde_json::Value>,
    /// Hash of the request of a sent task, by which a call that is made again recognizes its task.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) request: String,
    /// Number of the last question of the agent that does the task.
    #[serde(default)]
    pub(super) round: u32,
    /// The open question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<String>,
    /// Hashes of the questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) questions: Vec<String>,
    /// Number of the question that was passed on to the user.
    #[serde(default)]
    pub(super) asked_person: u32,
    /// Number of the question whose turn ended.
    #[serde(default)]
    pub(super) read_question: u32,
    /// The call waits for the result; no turn reads it.
    #[serde(default)]
    pub(super) is_awaited: bool,
    /// The request was repeated after an error.
    #[serde(default)]
    pub(super) was_retried: bool,
    /// A request was sent, and the bus did not confirm it.
    #[serde(default)]
    pub(super) was_unconfirmed: bool,
    /// The agent that does the task reported that it began; or the turn of a received task may have begun.
    #[serde(default)]
    pub(super) has_begun: bool,
    /// A result after the time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) late: Option<LateResult>,
}

impl PeerTask {
    /// Creates the exchange about a task, with its first message.
    pub(super) fn new(
        agent: AgentName,
        skill: String,
        wire_task: TaskId,
        message: MessageId,
    ) -> Self {
        Self {
            agent,
            skill,
            wire_task,
            reply_to: None,
            message,
            received: Vec::new(),
            contents: Vec::new(),
            data: None,
            request: String::new(),
            round: 0,
            question: None,
            questions: Vec::new(),
            asked_person: 0,
            read_question: 0,
            is_awaited: false,
            was_retried: false,
            was_unconfirmed: false,
            has_begun: false,
            late: None,
        }
    }
}

/// A result after the time limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LateResult {
    pub(super) text: String,
    /// Time of its arrival in Unix milliseconds.
    pub(super) at: u64,
    /// It was passed on.
    pub(super) is_folded: bool,
}

/// The turn that delegated the work, and its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRoot {
    pub(super) session: SessionId,
    pub(super) message: MessageId,
    /// Address of the user; absent if none takes part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<RoutingKey>,
    /// The broker user, if the broker validated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<String>,
    /// Number of turns on results since the last message of a user.
    pub(super) generation: u32,
}

/// Delegated work, and how it ended. Changed only by conditional writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRecord {
    pub(super) task: TaskId,
    pub(super) kind: TaskKind,
    /// The call that delegated it.
    pub(super) call: ToolCallId,
    pub(super) root: TaskRoot,
    /// The first call of the same model response: its results are read together.
    pub(super) batch: ToolCallId,
    /// Description, at most 200 characters.
    pub(super) description: String,
    /// The message with the work.
    pub(super) text: String,
    pub(super) state: TaskState,
    /// Times in Unix milliseconds.
    pub(super) created: u64,
    pub(super) deadline: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<u64>,
    pub(super) scope: RecordedScope,
    /// Trace of the call that delegated it, which its turns continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
    pub(super) grant: BudgetLimits,
    #[serde(default)]
    pub(super) spent: Spending,
    #[serde(default)]
    pub(super) last_report: String,
    /// The result, at most 64 KiB.
    #[serde(default)]
    pub(super) result: String,
    /// The message that passed the result on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) folded_by: Option<MessageId>,
    /// The other agent; absent for a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<Box<PeerTask>>,
}

/// Work that a call delegates.
pub(super) struct NewWork {
    pub(super) kind: TaskKind,
    pub(super) task: TaskId,
    /// Description, at most 200 characters.
    pub(super) description: String,
    pub(super) text: String,
    pub(super) timeout_minutes: u64,
}

impl TaskRecord {
    /// Creates the record of work that a call of `turn` delegates.
    pub(super) fn from_call(
        work: NewWork,
        context: &ToolContext,
        turn: DelegatingTurn,
        grant: &BudgetGrant,
    ) -> Self {
        let NewWork { kind, task, description, text, timeout_minutes } = work;
        let DelegatingTurn { message, reply_to, sender, generation, .. } = turn;
        let created = unix_ms();
        Self {
            task,
            kind,
            call: context.tool_call_id.clone(),
            root: TaskRoot {
                session: context.session_id.clone(),
                message,
                reply_to,
                sender,
                generation,
            },
            batch: context.step.clone().unwrap_or_else(|| context.tool_call_id.clone()),
            description,
            text,
            state: TaskState::Submitted,
            created,
            deadline: created.saturating_add(timeout_minutes * MINUTE_MS),
            ended: None,
            scope: context.scope.to_recorded(),
            trace: current_trace(),
            grant: grant.budget().remaining(),
            spent: Spending::default(),
            last_report: String::new(),
            result: String::new(),
            folded_by: None,
            peer: None,
        }
    }

    /// Returns the id of the work of a call: the same when the call is repeated.
    pub(super) fn id_of(call: &ToolCallId) -> Option<TaskId> {
        TaskId::new(derived_id(&["task", call.as_str()], ID_CHARS)).ok()
    }

    /// Returns the id at this agent of a task of another agent: tasks of two callers are never the same.
    pub(super) fn received_id_of(caller: &AgentName, task: &TaskId) -> Option<TaskId> {
        TaskId::new(derived_id(&["received", caller.as_str(), task.as_str()], 32)).ok()
    }

    /// Returns the place in the trace of the turn that delegated it.
    pub(super) fn trace(&self) -> TraceContext {
        TraceContext { parent: self.trace.as_deref().map(Into::into), state: None }
    }

    /// Returns the conversation in which the work is done.
    pub(super) fn session(&self) -> Option<SessionId> {
        session_of(self.kind, &self.task)
    }

    /// Returns the id of its message. Each answer to a question of a received task is a message of its own.
    pub(super) fn message(&self) -> Option<MessageId> {
        let round = self.peer.as_ref().filter(|_| self.kind == TaskKind::Received);
        let round = round.map(|peer| peer.round).filter(|round| *round > 0);
        MessageId::new(match round {
            Some(round) => format!("task-{}-{round}", self.task),
            None => format!("task-{}", self.task),
        })
        .ok()
    }

    /// Returns `true` if the turn of a received task asked its caller a question.
    pub(super) fn asks_caller(&self) -> bool {
        let question = self.peer.as_ref().and_then(|peer| peer.question.as_ref());
        self.kind == TaskKind::Received && question.is_some()
    }

    /// Returns `true` if a process must work on it: its turn is open, or a late result was not passed on. Work that
    /// waits for an answer to its question is continued when the answer arrives.
    pub(super) fn is_to_continue(&self) -> bool {
        let is_open = !self.state.is_terminal() && self.state != TaskState::InputRequired;
        is_open || self.unread_late().is_some()
    }

    /// Returns the late result, if it was not passed on.
    pub(super) fn unread_late(&self) -> Option<&LateResult> {
        let late = self.peer.as_ref().and_then(|peer| peer.late.as_ref());
        late.filter(|late| !late.is_folded)
    }

    /// Returns the number of delegations before it. Work waits for work of a higher level only.
    pub(super) fn level(&self) -> usize {
        match self.kind {
            TaskKind::Subagent | TaskKind::Sent => 0,
            TaskKind::Received => self.scope.agents.len().min(MAX_HANDOVERS),
        }
    }

    /// Returns `true` if a cancel of the received task arrived before its request.
    pub(super) fn was_cancelled_before_request(&self) -> bool {
        let has_no_request = self.peer.as_ref().is_some_and(|peer| peer.received.is_empty());
        self.kind == TaskKind::Received && self.state == TaskState::Cancelled && has_no_request
    }

    /// Returns whether the turn of a received task ran.
    pub(super) fn executed(&self) -> Executed {
        let has_begun = self.peer.as_ref().is_some_and(|peer| peer.has_begun);
        match (has_begun, self.spent == Spending::default()) {
            (false, true) => Executed::No,
            // It may have ended before its first step.
            (true, true) => Executed::Unknown,
            (_, false) => Executed::Yes,
        }
    }

    /// Returns `true` if a turn of the conversation reads the result.
    pub(super) fn is_read_in_turn(&self) -> bool {
        match self.kind {
            TaskKind::Subagent => true,
            TaskKind::Sent => self.peer.as_ref().is_some_and(|peer| !peer.is_awaited),
            TaskKind::Received => false,
        }
    }

    /// Returns the limits that are recorded in its conversation.
    pub(super) fn entry(&self) -> TaskEntry {
        TaskEntry {
            task: self.task.clone(),
            root: self.root.session.clone(),
            deadline: self.deadline,
            scope: self.scope.clone(),
            grant: self.grant,
        }
    }

    /// Returns the overview for users.
    pub(super) fn summary(&self) -> TaskSummary {
        TaskSummary {
            task_id: self.task.clone(),
            session_id: self.root.session.clone(),
            task_session_id: self.session().unwrap_or_else(|| self.root.session.clone()),
            description: self.description.clone(),
            agent: self.peer.as_ref().map(|peer| peer.agent.clone()),
            state: self.state,
            created_ms: self.created,
            ended_ms: self.ended,
            deadline_ms: self.deadline,
            usage: self.ended.map(|_| self.spent),
            last_report: self.last_report.clone(),
            is_folded: self.folded_by.is_some(),
        }
    }
}

/// Returns the place in the trace of the current span, to be recorded with new work.
pub(super) fn current_trace() -> Option<String> {
    trace::current().parent.as_deref().map(ToOwned::to_owned)
}

/// Returns the conversation of delegated work.
pub(super) fn session_of(kind: TaskKind, task: &TaskId) -> Option<SessionId> {
    SessionId::new(format!("{}{task}", kind.session_prefix())).ok()
}

/// Returns the record of a task at the agent `worker`, in a state.
#[cfg(test)]
pub(super) fn sent_record(state: TaskState) -> TaskRecord {
    let task = TaskId::new("t").unwrap();
    let (worker, message) = (AgentName::new("worker").unwrap(), MessageId::new("m").unwrap());
    let call = ToolCallId::new("c").unwrap();
    TaskRecord {
        kind: TaskKind::Sent,
        batch: call.clone(),
        call,
        root: TaskRoot {
            session: SessionId::new("s").unwrap(),
            message: message.clone(),
            reply_to: None,
            sender: None,
            generation: 0,
        },
        description: "Find it.".to_owned(),
        text: "Find it.".to_owned(),
        state,
        created: 0,
        deadline: u64::MAX,
        ended: None,
        scope: RecordedScope { profiles: Vec::new(), agents: Vec::new() },
        trace: None,
        grant: BudgetLimits::default(),
        spent: Spending::default(),
        last_report: String::new(),
        result: String::new(),
        folded_by: None,
        peer: Some(Box::new(PeerTask::new(worker, "ask".to_owned(), task.clone(), message))),
        task,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_two_callers_are_not_the_same() {
        let (a, b) = (AgentName::new("a").unwrap(), AgentName::new("b").unwrap());
        let task = TaskId::new("t").unwrap();
        let id = TaskRecord::received_id_of(&a, &task);
        assert_eq!(TaskRecord::received_id_of(&a, &task), id);
        assert_ne!(TaskRecord::received_id_of(&b, &task), id);
    }

    #[test]
    fn repeated_call_has_the_same_task() {
        let (call, other) = (ToolCallId::generate(), ToolCallId::generate());
        let id = TaskRecord::id_of(&call).unwrap();
        assert_eq!(TaskRecord::id_of(&call), Some(id.clone()));
        assert_ne!(TaskRecord::id_of(&other), Some(id.clone()));
        assert_eq!(id.as_str().len(), ID_CHARS);
        for kind in [TaskKind::Subagent, TaskKind::Sent, TaskKind::Received] {
            let session = session_of(kind, &id).unwrap();
            assert_eq!(task_of(&session), Some((kind, id.clone())));
        }
        assert!(!is_task_session(&SessionId::from(&call)));
    }
}
