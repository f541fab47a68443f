//! A turn that has no answer yet, folded from its log.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use rockbot_contracts::{
    ApprovalDecision, ApprovalId, Executed, MessageId, Spending, ToolCallId, TurnUsage,
};
use rockbot_llm::ChatMessage;

use super::{
    batch::batch_items,
    entry::{ApprovalRequestEntry, CallEntry, MessageEntry, ModelEntry, ResultEntry, unix_ms},
};
use crate::{
    tool_names::{BATCH, HANDOFF, SPAWN_WISPS, is_internal, starts_work},
    wisps::WispRequest,
};

/// Replaces the result of a call that has none, because model servers require one.
const NO_RESULT: &str = "(tool failed: the turn ended before the result arrived; whether the tool ran \
    is unknown)";

/// A turn without an answer.
#[derive(Debug, Clone)]
pub(crate) struct OpenTurn {
    /// The message that started it.
    pub(crate) message: MessageEntry,
    /// Set once the message and its context are part of the history.
    pub(crate) is_started: bool,
    /// Number of model answers with calls.
    pub(crate) iterations: u32,
    /// The calls of the last model answer, which are not part of the history yet.
    pub(crate) step: Option<OpenStep>,
    /// Usage so far, without that of the conversation before it.
    pub(crate) spent: TurnUsage,
    /// Calls with a result that handed work over.
    pub(crate) delegations: u64,
    /// Texts that the user sent in this turn.
    pub(crate) user_texts: Vec<String>,
    /// Ids of the messages that its answer answers.
    pub(crate) ids: Vec<MessageId>,
    /// Approval requests, by the hash of their call.
    pub(crate) approvals: HashMap<String, RecordedApproval>,
    /// The user cancelled it.
    pub(crate) is_cancelled: bool,
    /// Number of the process that ran it last, from 1.
    pub(crate) attempt: u32,
    /// Processes that recorded, called or requested something since its last step, and were lost.
    pub(crate) lost_on_step: u32,
    /// The process that ran it last recorded, called or requested something.
    has_acted: bool,
    /// Number of the process that started the last step.
    step_attempt: u32,
    /// Time of its first entry in Unix milliseconds.
    pub(crate) started: u64,
    /// Time that processes ran it, in milliseconds: from the first entry of each to its last.
    ran: u64,
    /// Time of its last entry in Unix milliseconds.
    last_entry: u64,
}

/// Calls of a model answer, with the results that were recorded.
#[derive(Debug, Clone)]
pub(crate) struct OpenStep {
    pub(crate) text: String,
    pub(crate) calls: Vec<CallEntry>,
    pub(crate) truncated: bool,
    pub(crate) results: HashMap<ToolCallId, ResultEntry>,
}

/// A recorded approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedApproval {
    pub(crate) id: ApprovalId,
    /// The call that waits for it.
    pub(crate) call: ToolCallId,
    /// The process that started the step made it: the call had not run before.
    pub(crate) is_first: bool,
    pub(crate) outcome: RecordedOutcome,
}

/// The outcome of a recorded approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedOutcome {
    /// The user has not decided.
    Open,
    /// The user did not decide in time.
    Expired,
    /// The user decided.
    Decided(ApprovalDecision),
}

impl OpenTurn {
    /// Creates a turn that starts now.
    pub(crate) fn starting(message: MessageEntry) -> Self {
        Self::at(message, unix_ms())
    }

    /// Creates a turn that started at a time, in Unix milliseconds.
    pub(super) fn at(message: MessageEntry, started: u64) -> Self {
        let (user_texts, ids) = (vec![message.text.clone()], vec![message.id.clone()]);
        let delegated =
            message.task_results.as_ref().map(|results| results.spent).unwrap_or_default();
        let spent = TurnUsage { turn: delegated, children: delegated, ..TurnUsage::default() };
        Self {
            message,
            is_started: false,
            iterations: 0,
            step: None,
            spent,
            delegations: 0,
            user_texts,
            ids,
            approvals: HashMap::new(),
            is_cancelled: false,
            attempt: 1,
            lost_on_step: 0,
            has_acted: true,
            step_attempt: 1,
            started,
            ran: 0,
            last_entry: started,
        }
    }

    /// Returns the time limit of the whole turn, and the rest of it. `default` is the limit of a turn that an
    /// earlier build recorded. The time in which no process ran the turn does not count.
    pub(crate) fn time_limit(&self, default: Duration) -> (Duration, Duration) {
        let recorded = self.message.deadline.filter(|_| self.attempt > 1);
        let limit = recorded.map_or(default, |deadline| {
            Duration::from_millis(deadline.saturating_sub(self.started))
        });
        (limit, limit.saturating_sub(Duration::from_millis(self.ran)))
    }

    /// Counts the time up to an entry of the process that runs the turn.
    pub(super) fn ran_until(&mut self, at: u64) {
        self.ran = self.ran.saturating_add(at.saturating_sub(self.last_entry));
        self.last_entry = at;
    }

    /// Starts to count the time of another process, whose clock may differ.
    pub(super) fn runs_again_from(&mut self, at: u64) {
        self.last_entry = at;
    }

    /// Records that a process works on the turn.
    pub(super) fn record_activity(&mut self) {
        self.has_acted = true;
    }

    /// Records that the step makes progress: later losses count for the next one.
    pub(super) fn record_progress(&mut self) {
        self.lost_on_step = 0;
        self.has_acted = true;
    }

    /// Records that a process released the turn for another one, which is not a loss.
    pub(super) fn released(&mut self) {
        self.lost_on_step = 0;
        self.has_acted = false;
    }

    /// Records a takeover. A process that did nothing does not count as lost: it may have waited for the
    /// store. The model call that may have been under way in one that did is unmetered.
    pub(crate) fn taken_over(&mut self, attempt: u32) {
        self.attempt = attempt;
        if !std::mem::take(&mut self.has_acted) {
            return;
        }
        self.lost_on_step += 1;
        if self.step.as_ref().is_none_or(OpenStep::is_complete) {
            self.spent.turn += Spending {
                model_calls: 1,
                unmetered_calls: 1,
                unpriced_calls: 1,
                ..Spending::default()
            };
        }
    }

    /// Adds an approval request.
    pub(super) fn approval_requested(&mut self, request: ApprovalRequestEntry) {
        let ApprovalRequestEntry { approval: id, call, hash } = request;
        let (is_first, outcome) = (self.attempt == self.step_attempt, RecordedOutcome::Open);
        self.approvals.insert(hash, RecordedApproval { id, call, is_first, outcome });
    }

    /// Returns the calls that no process has run, because an approval was missing.
    pub(crate) fn unapproved_calls(&self) -> HashSet<ToolCallId> {
        let is_allowed = |one: &&RecordedApproval| {
            let allows = [ApprovalDecision::Allow, ApprovalDecision::AllowInSession];
            matches!(one.outcome, RecordedOutcome::Decided(made) if allows.contains(&made))
        };
        let allowed: HashSet<_> =
            self.approvals.values().filter(is_allowed).map(|one| &one.call).collect();
        let asked = self.approvals.values().filter(|one| one.is_first).map(|one| &one.call);
        asked.filter(|call| !allowed.contains(call)).cloned().collect()
    }

    /// Starts a step.
    pub(super) fn model_answered(&mut self, entry: ModelEntry) {
        let ModelEntry { text, calls, truncated, cost, .. } = entry;
        self.iterations += 1;
        self.step_attempt = self.attempt;
        self.spent.turn += cost;
        self.step = Some(OpenStep { text, calls, truncated, results: HashMap::new() });
    }

    /// Adds a result. Returns `false` if no call of the step waits for it.
    pub(super) fn call_finished(&mut self, entry: ResultEntry) -> bool {
        let Some(step) = &mut self.step else { return false };
        let Some(call) = step.calls.iter().find(|call| call.call == entry.call) else {
            return false;
        };
        self.spent.turn += Spending {
            tool_calls: 1,
            tool_bytes_in: call.arguments.len() as u64,
            tool_bytes_out: entry.text.len() as u64,
            ..Spending::default()
        };
        self.spent.turn.tool_calls += entry.inner_calls;
        self.delegations += match entry.delegations {
            Some(started) => started,
            None if entry.executed == Executed::No => 0,
            None => delegations(call),
        };
        self.spent.turn += entry.child;
        self.spent.children += entry.child;
        step.results.insert(entry.call.clone(), entry);
        true
    }
}

/// Returns the number of turns that a call may have started. Of a batch or plans, the number if all of their calls and
/// steps ran.
fn delegations(call: &CallEntry) -> u64 {
    match call.name.as_str() {
        BATCH => batch_items(call)
            .map_or(0, |items| items.iter().map(|item| delegations(&item.call)).sum()),
        SPAWN_WISPS => {
            WispRequest::parse(&call.arguments).map_or(0, |request| request.delegations())
        }
        HANDOFF => 1,
        tool if is_internal(tool) => 0,
        tool => u64::from(starts_work(tool)),
    }
}

impl OpenStep {
    /// Returns `true` if every call has a result.
    pub(crate) fn is_complete(&self) -> bool {
        self.results.len() == self.calls.len()
    }

    /// Returns the messages of the step: the model's, and a result for every call.
    pub(crate) fn into_messages(mut self) -> Vec<ChatMessage> {
        let tool_calls = self.calls.iter().map(CallEntry::request).collect();
        let mut messages = vec![ChatMessage::Assistant { text: self.text, tool_calls }];
        for call in self.calls {
            let result = self.results.remove(&call.call);
            let content =
                result.map_or_else(|| NO_RESULT.to_owned(), |result| result.text_without_media());
            messages.push(ChatMessage::Tool { tool_call_id: call.id, content });
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use rockbot_tools::EntryPoint;
    use serde_json::json;

    use super::*;

    /// Returns the number of delegations that a result of three plan steps adds to its turn.
    fn counted(result: impl FnOnce(ResultEntry) -> ResultEntry) -> u64 {
        let mut turn = OpenTurn::starting(MessageEntry {
            id: MessageId::generate(),
            sender: None,
            reply_to: None,
            text: "go".to_owned(),
            media: Vec::new(),
            entry: EntryPoint::UserTurn,
            deadline: None,
            trace: None,
            span: None,
            task: None,
            task_results: None,
        });
        let step = |id: &str| json!({"id": id, "mode": "Llm", "prompt": "x"});
        let plan = json!({"description": "x", "steps": [step("a"), step("b"), step("c")]});
        let call = ToolCallId::generate();
        let calls = vec![CallEntry {
            call: call.clone(),
            id: "call_1".to_owned(),
            name: SPAWN_WISPS.to_owned(),
            tool: None,
            arguments: json!({"definitions": plan}).to_string(),
        }];
        turn.model_answered(ModelEntry {
            text: String::new(),
            calls,
            truncated: false,
            context: None,
            cost: Spending::default(),
        });
        assert!(turn.call_finished(result(ResultEntry::succeeded(call, "done".to_owned()))));
        turn.delegations
    }

    #[test]
    fn recorded_delegations_replace_the_estimate() {
        for started in [0, 1, 3] {
            let recorded = |entry: ResultEntry| ResultEntry { delegations: Some(started), ..entry };
            assert_eq!(counted(recorded), started);
        }
        assert_eq!(counted(|entry| entry), 3, "of an earlier build");
        let unexecuted = |entry: ResultEntry| ResultEntry { executed: Executed::No, ..entry };
        assert_eq!(counted(unexecuted), 0);
    }

    #[test]
    fn recorded_zero_delegations_are_read_as_written() {
        let entry = ResultEntry::succeeded(ToolCallId::generate(), "done".to_owned());
        for delegations in [None, Some(0), Some(2)] {
            let entry = ResultEntry { delegations, ..entry.clone() };
            let value = serde_json::to_value(&entry).unwrap();
            assert_eq!(value.get("delegations").is_some(), delegations.is_some());
            assert_eq!(serde_json::from_value::<ResultEntry>(value).unwrap(), entry);
        }
    }
}
