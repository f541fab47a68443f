//! The records of tasks that other agents request.

use std::time::Duration;

use rockbot_contracts::{
    AgentTaskRequest, Envelope, MessageId, Spending, TaskCaller, TaskId, TaskState, ToolCallId,
};
use rockbot_tools::{BudgetLimits, RecordedScope, scope::MAX_HANDOVERS};

use super::{
    frame::{self, one_line, task_text},
    message_digest::MessageDigest,
    peers::Peers,
    record::{PeerTask, TaskKind, TaskRecord, TaskRoot, current_trace, session_of},
    tasks::Attached,
};
use crate::conversation::unix_ms;

/// Instructions of the turn about its role.
const ROLE: &str = include_str!("../../guides/agent-task-role.md");

/// A request, and what it is checked against.
pub(super) struct Inbound<'a> {
    pub(super) attached: &'a Attached,
    pub(super) peers: &'a Peers,
    pub(super) caller: &'a TaskCaller,
    pub(super) envelope: &'a Envelope,
    pub(super) request: AgentTaskRequest,
    pub(super) digest: MessageDigest,
}

/// Returns the record of a checked request.
pub(super) fn new_record(task: TaskId, inbound: &Inbound<'_>, time: Duration) -> TaskRecord {
    let Inbound { peers, caller, request, digest, .. } = inbound;
    let (text, data) = content(request);
    let description = frame::description(&text);
    let framed = task_text(caller.name.as_str(), &one_line(&request.skill), &text, data.as_deref());
    let mut lineage = request.lineage.clone();
    if lineage.last() != Some(&caller.name) {
        // The broker validates the caller, but not its lineage.
        lineage.push(caller.name.clone());
    }
    let id = request.message.message_id.clone().unwrap_or_else(MessageId::generate);
    let (name, skill) = (caller.name.clone(), request.skill.clone());
    let mut peer = PeerTask::new(name, skill, request.task_id.clone(), id);
    peer.reply_to = Some(caller.reply_to.clone());
    digest.add_to(&mut peer);
    let call = ToolCallId::new(task.as_str()).unwrap_or_else(|_| ToolCallId::generate());
    let record = blank_record(task, caller, call, peer);
    TaskRecord {
        description,
        text: format!("{ROLE}\n{framed}"),
        deadline: after(record.created, time),
        scope: RecordedScope { profiles: Vec::new(), agents: lineage },
        grant: grant(peers.limits, request),
        ..record
    }
}

/// Returns the record of a task whose cancel arrived before its request.
pub(super) fn cancelled_record(task: TaskId, caller: &TaskCaller, task_id: &TaskId) -> TaskRecord {
    let (name, skill) = (caller.name.clone(), String::new());
    let peer = PeerTask::new(name, skill, task_id.clone(), MessageId::generate());
    let record = blank_record(task, caller, ToolCallId::generate(), peer);
    TaskRecord {
        description: "Cancelled before its request arrived.".to_owned(),
        state: TaskState::Cancelled,
        ended: Some(record.created),
        // There is nothing to pass on.
        folded_by: Some(record.root.message.clone()),
        ..record
    }
}

/// Returns the record of a submitted task without a text, a budget and time.
fn blank_record(task: TaskId, caller: &TaskCaller, call: ToolCallId, peer: PeerTask) -> TaskRecord {
    let now = unix_ms();
    TaskRecord {
        kind: TaskKind::Received,
        batch: call.clone(),
        root: TaskRoot {
            session: session_of(TaskKind::Received, &task).unwrap_or_else(|| (&call).into()),
            message: peer.message.clone(),
            reply_to: None,
            sender: caller.user.clone(),
            generation: 0,
        },
        call,
        description: String::new(),
        text: String::new(),
        state: TaskState::Submitted,
        created: now,
        deadline: now,
        ended: None,
        scope: RecordedScope { profiles: Vec::new(), agents: vec![caller.name.clone()] },
        trace: current_trace(),
        grant: BudgetLimits::default(),
        spent: Spending::default(),
        last_report: String::new(),
        result: String::new(),
        folded_by: None,
        peer: Some(Box::new(peer)),
        task,
    }
}

/// Returns the budget of a task: what the caller grants, within the own limits.
fn grant(own: BudgetLimits, request: &AgentTaskRequest) -> BudgetLimits {
    let depth = u32::try_from(MAX_HANDOVERS).unwrap_or(u32::MAX);
    let delegations = u32::try_from(request.lineage.len()).unwrap_or(u32::MAX).max(request.depth);
    let depth = own.depth.min(depth.saturating_sub(delegations));
    let Some(granted) = request.budget else { return BudgetLimits { depth, ..own } };
    let costs = [own.cost_micros, granted.cost_micros];
    BudgetLimits {
        model_calls: own.model_calls.min(granted.model_calls),
        tokens: own.tokens.min(granted.tokens),
        cost_micros: costs.into_iter().flatten().min(),
        tool_calls: own.tool_calls.min(granted.tool_calls),
        delegations: own.delegations.min(granted.delegations),
        depth,
    }
}

/// Returns the texts and the data of a request.
pub(super) fn content(request: &AgentTaskRequest) -> (String, Option<String>) {
    let parts = &request.message.parts;
    let texts: Vec<_> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
    let data: Vec<_> = parts
        .iter()
        .filter(|part| part.text.is_none())
        .filter_map(|part| part.data.as_ref().map(ToString::to_string))
        .collect();
    (texts.join("\n"), (!data.is_empty()).then(|| data.join("\n")))
}

/// Returns the time in Unix milliseconds that is `time` after `start`.
pub(super) fn after(start: u64, time: Duration) -> u64 {
    start.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a request of the agent `a`.
#[cfg(test)]
pub(super) fn sample_request() -> AgentTaskRequest {
    use rockbot_contracts::{AgentName, TaskMessage};

    AgentTaskRequest {
        task_id: TaskId::new("t").unwrap(),
        skill: "ask".to_owned(),
        message: TaskMessage::new(TaskMessage::USER, "Do it.", None),
        lineage: vec![AgentName::new("a").unwrap()],
        depth: 0,
        budget: None,
    }
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::TaskBudget;

    use super::*;

    #[test]
    fn budget_is_the_smaller_of_both_sides() {
        let own = BudgetLimits { model_calls: 50, ..BudgetLimits::default() };
        let granted = TaskBudget {
            model_calls: 10,
            tokens: u64::MAX,
            cost_micros: Some(5),
            tool_calls: 7,
            delegations: 0,
        };
        let limits = grant(own, &AgentTaskRequest { budget: Some(granted), ..sample_request() });
        assert_eq!((limits.model_calls, limits.tool_calls, limits.delegations), (10, 7, 0));
        assert_eq!((limits.tokens, limits.cost_micros), (own.tokens, Some(5)));
        assert_eq!(limits.depth, 2);
        assert_eq!(grant(own, &AgentTaskRequest { depth: 9, ..sample_request() }).depth, 0);
    }
}
