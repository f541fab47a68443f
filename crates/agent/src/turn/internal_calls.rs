//! Calls of internal tools that end or steer the turn.

use std::collections::BTreeSet;

use rockbot_llm::{AssembledAnswer, FinishReason, ToolChoice};

use super::{StopReason, Turn};
use crate::{
    conversation::CallEntry,
    event::TurnEvent,
    internal_tools::{FinalReport, TaskStatusArguments, text_of_invalid},
    tool_names::{FINAL_REPORT, TASK_STATUS},
};

/// Reports that may be invalid; the last one is then adopted as it is.
const MAX_INVALID_REPORTS: u32 = 3;
/// Status calls in a row, each alone in its response, after which the model must answer.
const MAX_LONE_STATUS: u32 = 2;

/// How the calls of a step ended, by position.
#[derive(Debug, Default)]
pub(super) struct EndedCalls {
    /// Those with a result.
    pub(super) succeeded: BTreeSet<usize>,
    /// Those that failed. The others were not made.
    pub(super) failed: BTreeSet<usize>,
}

/// Effects of internal tools on the rest of a turn.
#[derive(Debug, Default)]
pub(super) struct InternalState {
    invalid_reports: u32,
    lone_status: u32,
    /// The next answer must be final.
    pub(super) must_answer: bool,
}

impl Turn<'_> {
    /// Applies the internal tools that a step called. Returns the end of the turn, if one of them ends it.
    pub(super) fn apply_internal(
        &mut self,
        calls: &[CallEntry],
        ended: &EndedCalls,
    ) -> Option<StopReason> {
        self.apply_status(calls, ended);
        let mut reports = calls.iter().enumerate().filter(|(_, call)| self.is_report(call));
        if let Some((_, call)) = reports.clone().find(|(at, _)| ended.succeeded.contains(at)) {
            let report = FinalReport::parse(&call.arguments);
            let text = report.map_or_else(|| text_of_invalid(&call.arguments), |one| one.text());
            return Some(StopReason::Answered(answer(text)));
        }
        let (_, call) = reports.find(|(at, _)| ended.failed.contains(at))?;
        self.internal.invalid_reports += 1;
        (self.internal.invalid_reports >= MAX_INVALID_REPORTS)
            .then(|| StopReason::IterationLimit(answer(text_of_invalid(&call.arguments))))
    }

    fn apply_status(&mut self, calls: &[CallEntry], ended: &EndedCalls) {
        let is_status = |call: &CallEntry| self.setup.is_internal(&call.name, TASK_STATUS);
        let made = calls
            .iter()
            .enumerate()
            .filter(|(at, call)| ended.succeeded.contains(at) && is_status(call));
        let made: Vec<_> =
            made.filter_map(|(_, call)| TaskStatusArguments::parse(&call.arguments)).collect();
        let is_alone = calls.len() == 1 && made.len() == 1;
        let is_ready = made.iter().any(TaskStatusArguments::is_ready);
        for status in made {
            if let (Some((entry, ..)), Some(delegation)) =
                (self.origin.task(), &self.setup.delegation)
            {
                delegation.report(entry.task.clone(), status.line());
            }
            let TaskStatusArguments { status, done, pending, now, .. } = status;
            (self.progress)(TurnEvent::TaskStatus { status, done, pending, now });
        }
        let internal = &mut self.internal;
        internal.lone_status = if is_alone { internal.lone_status + 1 } else { 0 };
        internal.must_answer |= is_ready || internal.lone_status >= MAX_LONE_STATUS;
    }

    /// Returns `true` for a call of the final report.
    pub(super) fn is_report(&self, call: &CallEntry) -> bool {
        self.setup.is_internal(&call.name, FINAL_REPORT)
    }

    /// Requests the last answer: a final report, where the agent gives one, or text.
    pub(super) async fn request_final_answer(&mut self) -> Result<AssembledAnswer, StopReason> {
        let mut last = self.call_model(ToolChoice::None).await?;
        let report = last.tool_calls.iter().find(|call| call.name == FINAL_REPORT);
        if let Some(call) = report {
            let report = FinalReport::parse(&call.arguments);
            last.text =
                report.map_or_else(|| text_of_invalid(&call.arguments), |report| report.text());
            last.finish_reason = FinishReason::Stop;
        }
        last.tool_calls.clear();
        Ok(last)
    }
}

fn answer(text: String) -> AssembledAnswer {
    let (tool_calls, usage) = (Vec::new(), None);
    AssembledAnswer { text, tool_calls, finish_reason: FinishReason::Stop, usage }
}
