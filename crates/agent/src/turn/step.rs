//! A step of a turn: the tool calls of one model answer, and their results.

use std::collections::HashMap;

use rockbot_contracts::{Executed, ToolCallId};
use rockbot_llm::{AssembledAnswer, ChatMessage, FinishReason, Media, ToolCallRequest};
use rockbot_tools::ToolFailure;
use tokio::time::Instant;
use tracing::info;

use super::{
    Turn,
    calls::{CallRunner, TimeoutStreak, result_lost},
    stop_reason::{HandedOff, StopReason},
    token_budget::{BUDGET_EXCEEDED, MEDIA_LEFT_OUT, SHORT_TOKENS},
};
use crate::{
    conversation::{
        CallEntry, ConversationEntry, ConversationError, ModelEntry, OpenStep, ResultEntry,
    },
    strategy::{ExecutionStrategy, Steering},
};

impl Turn<'_> {
    /// Records an answer with calls, before the first of them is made.
    pub(super) async fn record_step(
        &mut self,
        answer: AssembledAnswer,
    ) -> Result<OpenStep, StopReason> {
        let truncated = answer.finish_reason == FinishReason::Length;
        let call = |request: ToolCallRequest| {
            let ToolCallRequest { id, name, arguments } = request;
            let tool = self.setup.called_tool(&self.names, &name);
            CallEntry { call: ToolCallId::generate(), id, name, tool, arguments }
        };
        let calls: Vec<_> = answer.tool_calls.into_iter().map(call).collect();
        let mut entry = ConversationEntry::Model(ModelEntry {
            text: answer.text.clone(),
            calls: calls.clone(),
            truncated,
            context: self.unrecorded_context.take(),
            cost: self.meter.take_unrecorded(),
        });
        match self.recorder.record(&mut entry).await {
            Ok(_) => {}
            // Another request would give the same answer, so the turn ends.
            Err(ConversationError::Unwritable { .. }) => {
                if let ConversationEntry::Model(model) = entry {
                    self.unrecorded_context = model.context;
                }
                return Err(StopReason::AnswerTooLarge);
            }
            Err(error) => return Err(error.into()),
        }
        // A later loss of the process is on the calls of this step, not on those of another process.
        self.start.attempt = 1;
        Ok(OpenStep { text: answer.text, calls, truncated, results: HashMap::new() })
    }

    /// Runs the calls of a step that have no result, and adds the step to the history, with the results in
    /// the order of the calls. Returns the reason if the turn cannot continue.
    pub(super) async fn run_step(&mut self, step: OpenStep) -> Option<StopReason> {
        let OpenStep { text, calls, truncated, results } = step;
        let tool_calls = calls.iter().map(CallEntry::request).collect();
        self.push(ChatMessage::Assistant { text, tool_calls }).await;
        let runner = CallRunner::new(self, truncated, &calls, &results);
        let pending =
            calls.iter().enumerate().filter(|(_, call)| !results.contains_key(&call.call));
        // A handoff ends the turn without the other calls, and a report after them.
        let (handoffs, pending): (Vec<_>, Vec<_>) =
            pending.partition(|(_, call)| self.is_handoff(call));
        // A process that is lost between a handoff and its other calls leaves these to the next one.
        let is_made = |call: &CallEntry| self.is_handoff(call) && results.contains_key(&call.call);
        let (handed_off, pending) = if calls.iter().any(is_made) {
            self.refuse_beside_handoff(&runner, handoffs.into_iter().chain(pending)).await;
            (None, Vec::new())
        } else {
            self.run_handoffs(&runner, handoffs, pending).await
        };
        let (reports, pending): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, call)| self.is_report(call));
        let strategy: ExecutionStrategy = self.setup.definition.strategy;
        let steer = || if self.should_stop(&runner) { Steering::Stop } else { Steering::Continue };
        strategy.run(pending, |(at, call)| runner.call(at, call), steer).await;
        self.run_reports(&runner, reports).await;
        let ended = runner.ended();
        let mut media = runner.take_media();
        let (streak, mut texts, failure) = runner.finish();
        if let Some(error) = failure {
            return Some(error.into());
        }
        if self.handover.is_cancelled() {
            return Some(StopReason::Released);
        }
        if let Err(error) = self.record_skipped(&calls, &mut texts, &streak).await {
            return Some(error.into());
        }
        let internal = match self.apply_handoff(&calls, &ended, handed_off).await {
            Some(reason) => Some(reason),
            None => self.apply_internal(&calls, &ended),
        };
        let mut left = calls.len();
        for (position, (call, text)) in calls.into_iter().zip(texts).enumerate() {
            left -= 1;
            let media = media.remove(&position).unwrap_or_default();
            self.push_result(call.id, text.unwrap_or_default(), media, left).await;
        }
        self.streak = streak;
        if self.cancellation.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Some(self.timed_out(true));
        }
        if self.streak.is_over() {
            return Some(StopReason::ToolTimeouts(self.streak.timed_out()));
        }
        internal
    }

    /// Makes the first handoff. Returns its answer, and the calls that are left: none after a handoff.
    async fn run_handoffs<'c>(
        &self,
        runner: &CallRunner<'_>,
        handoffs: Vec<(usize, &'c CallEntry)>,
        pending: Vec<(usize, &'c CallEntry)>,
    ) -> (Option<HandedOff>, Vec<(usize, &'c CallEntry)>) {
        let mut handoffs = handoffs.into_iter();
        let Some((at, call)) = handoffs.next() else { return (None, pending) };
        if self.should_stop(runner) {
            return (None, Vec::new());
        }
        let answer = runner.call_handoff(at, call).await;
        self.refuse_beside_handoff(runner, handoffs.chain(pending)).await;
        (answer, Vec::new())
    }

    /// Records that the other calls of a response with a handoff are not made.
    async fn refuse_beside_handoff<'c>(
        &self,
        runner: &CallRunner<'_>,
        calls: impl Iterator<Item = (usize, &'c CallEntry)>,
    ) {
        for (at, call) in calls {
            if self.handover.is_cancelled() {
                break;
            }
            runner.refuse(at, call, "not run: the response handed the turn off").await;
        }
    }

    /// Makes the calls of the final report, until one is accepted.
    async fn run_reports(&self, runner: &CallRunner<'_>, reports: Vec<(usize, &CallEntry)>) {
        let mut is_given = false;
        for (at, call) in reports {
            if self.should_stop(runner) {
                return;
            }
            if is_given {
                runner.refuse(at, call, "the report was given already").await;
            } else {
                runner.call(at, call).await;
                is_given = runner.ended().succeeded.contains(&at);
            }
        }
    }

    /// Records the results of calls that this process did not start. Another process may have run them.
    async fn record_skipped(
        &self,
        calls: &[CallEntry],
        texts: &mut [Option<String>],
        streak: &TimeoutStreak,
    ) -> Result<(), ConversationError> {
        let skipped = self.skip_text(streak);
        let mut entries = Vec::new();
        for (call, text) in calls.iter().zip(texts) {
            if text.is_none() {
                let result = if self.may_have_run(&call.call) {
                    ResultEntry::failed(call.call.clone(), &result_lost())
                } else {
                    ResultEntry {
                        executed: Executed::No,
                        ..ResultEntry::succeeded(call.call.clone(), skipped.to_owned())
                    }
                };
                *text = Some(result.text.clone());
                entries.push(ConversationEntry::Result(result));
            }
        }
        if !entries.is_empty() {
            self.recorder.record_all(&mut entries).await?;
        }
        Ok(())
    }

    /// Returns `true` if another process may have run a call of the current step.
    pub(super) fn may_have_run(&self, call: &ToolCallId) -> bool {
        self.start.attempt > 1 && !self.start.unapproved.contains(call)
    }

    /// Records that the missing results of a step will not be known, and adds the step to the history.
    pub(super) async fn close_open_step(
        &mut self,
        mut step: OpenStep,
    ) -> Result<(), ConversationError> {
        let open = step.calls.iter().filter(|call| !step.results.contains_key(&call.call));
        let results: Vec<_> = open
            .map(|CallEntry { call, .. }| {
                let failure = if self.start.unapproved.contains(call) {
                    ToolFailure::Cancelled { executed: Executed::No }
                } else {
                    let message = "the turn ended before the result arrived".to_owned();
                    ToolFailure::OutcomeUnknown { message }
                };
                ResultEntry::failed(call.clone(), &failure)
            })
            .collect();
        if !results.is_empty() {
            let mut entries: Vec<_> =
                results.iter().cloned().map(ConversationEntry::Result).collect();
            self.recorder.record_all(&mut entries).await?;
        }
        step.results.extend(results.into_iter().map(|result| (result.call.clone(), result)));
        for message in step.into_messages() {
            self.push(message).await;
        }
        Ok(())
    }

    /// Adds a result to the history if it fits beside the current exchange and the `left` remaining
    /// results. Otherwise adds [`BUDGET_EXCEEDED`]. Its media is added if it fits too.
    async fn push_result(
        &mut self,
        tool_call_id: String,
        mut content: String,
        media: Vec<Media>,
        left: usize,
    ) {
        let mut tokens = self.setup.token_budget.count_text(&content).await;
        let taken = self.history.current_exchange_tokens() + left * SHORT_TOKENS;
        let fits = |tokens| self.history_budget.is_none_or(|budget| taken + tokens <= budget);
        let media_tokens: usize = media.iter().map(Media::estimated_tokens).sum();
        let mut media = Some(media).filter(|media| !media.is_empty());
        if tokens > SHORT_TOKENS && !fits(tokens) {
            info!(session_id = %self.session_id, tokens, "tool result exceeds context window; ending turn");
            self.context_exhausted = true;
            tokens = SHORT_TOKENS;
            BUDGET_EXCEEDED.clone_into(&mut content);
            media = None;
        } else if media.is_some() && !fits(tokens + media_tokens) {
            info!(session_id = %self.session_id, media_tokens, "media of tool result exceeds context window");
            tokens += SHORT_TOKENS;
            content.push_str(MEDIA_LEFT_OUT);
            media = None;
        }
        self.history.push(ChatMessage::Tool { tool_call_id, content }, tokens);
        if let Some(media) = media {
            self.history.push(ChatMessage::Media(media), media_tokens);
        }
    }

    /// Returns `true` if no further batch of calls may start.
    fn should_stop(&self, runner: &CallRunner<'_>) -> bool {
        self.cancellation.is_cancelled()
            || self.handover.is_cancelled()
            || self.steering.has_messages()
            || Instant::now() >= self.deadline
            || runner.timeouts_exceeded()
    }

    /// Returns the result of calls that no process has started.
    fn skip_text(&self, streak: &TimeoutStreak) -> &'static str {
        if self.cancellation.is_cancelled() {
            "(tool failed: cancelled)"
        } else if streak.is_over() {
            "(tool skipped: too many earlier tool calls timed out)"
        } else if Instant::now() >= self.deadline {
            "(tool skipped: the turn exceeded its time limit)"
        } else {
            "(tool skipped: the user sent a new message)"
        }
    }
}
