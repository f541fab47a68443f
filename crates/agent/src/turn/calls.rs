//! The calls of one answer of the model.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rockbot_contracts::{Executed, ToolCallId, ToolErrorCode};
use rockbot_llm::ToolCallRequest;
use rockbot_memory::MemoryOwner;
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolResult};
use serde::de::IgnoredAny;
use tokio::time::{Instant, sleep};

use super::Turn;
use crate::{
    event::{relay, shown},
    large::{LongResult, READS_CHUNKS},
};

/// How long a cancelled tool has to say whether it ran. Tools that keep their deadline themselves
/// need an answer from another process.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// A call and its place in the answer.
#[derive(Debug, Clone)]
pub(super) struct PendingCall {
    pub(super) position: usize,
    pub(super) request: ToolCallRequest,
}

/// A call that ended in a time-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimedOutCall {
    pub(super) tool_name: String,
    pub(super) executed: Executed,
}

/// How many calls timed out in a row, over the answers of a turn.
#[derive(Debug, Clone)]
pub(super) struct TimeoutStreak {
    most: usize,
    calls: Vec<TimedOutCall>,
}

impl TimeoutStreak {
    pub(super) fn new(most: u32) -> Self {
        Self { most: most as usize, calls: Vec::new() }
    }

    /// Counts the next call. A streak that is over stays over.
    fn count(&mut self, timed_out: Option<TimedOutCall>) {
        match timed_out {
            _ if self.is_over() => {}
            Some(call) => self.calls.push(call),
            None => self.calls.clear(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.calls.len() >= self.most
    }

    pub(super) fn timed_out(&self) -> Vec<TimedOutCall> {
        self.calls.clone()
    }
}

/// Runs the calls of one answer.
pub(super) struct Caller<'a> {
    turn: &'a Turn<'a>,
    executor: ToolExecutor,
    is_cut: bool,
    ended: Mutex<BTreeMap<usize, Option<TimedOutCall>>>,
}

impl<'a> Caller<'a> {
    /// `is_cut`: the answer reached its longest length.
    pub(super) fn new(turn: &'a Turn<'_>, is_cut: bool) -> Self {
        let setup = turn.setup;
        let mut executor = ToolExecutor::with_layers(setup.registry.clone(), setup.layers.clone())
            .watched(relay(turn.progress.clone()));
        for hook in &setup.hooks {
            executor = executor.hooked(hook.clone());
        }
        Self { turn, executor, is_cut, ended: Mutex::default() }
    }

    /// Runs one call and returns what the model reads.
    pub(super) async fn call(&self, call: PendingCall) -> String {
        let PendingCall { position, request } = call;
        let context = self.context(self.turn.names.own(&request.name));
        let (owner, call) = (MemoryOwner::from_context(&context), context.tool_call_id.clone());
        let ended = self.run(&request, context).await;
        let timed_out = match &ended {
            Err(failure) if failure.code() == ToolErrorCode::Timeout => Some(TimedOutCall {
                tool_name: shown(&request.name, 64),
                executed: failure.executed(),
            }),
            _ => None,
        };
        self.ended().insert(position, timed_out);
        let account = &self.turn.account;
        let text = match ended {
            Ok(result) => {
                if let Some(child) = &result.child_spending {
                    account.child_ended(**child);
                }
                self.shown(&request.name, &call, &owner, model_text(&result)).await
            }
            Err(failure) => failure.model_text(),
        };
        account.tool_ended(request.arguments.len(), text.len());
        text
    }

    /// What the model is shown of a text that a tool returned.
    async fn shown(
        &self,
        name: &str,
        call: &ToolCallId,
        owner: &MemoryOwner,
        text: String,
    ) -> String {
        let Turn { setup, scope, names, .. } = self.turn;
        let reads_chunks = setup.registry.get(READS_CHUNKS);
        let result = LongResult {
            tool: names.own(name),
            call,
            text,
            threshold: setup.behaviour.shown_chars(),
            // Four characters a token.
            readable: setup.behaviour.context_window.map_or(usize::MAX, |tokens| tokens as usize),
            can_read_chunks: reads_chunks.is_some_and(|tool| scope.permits(tool.registration())),
        };
        setup.large.shown(owner, result).await
    }

    async fn run(
        &self,
        request: &ToolCallRequest,
        context: ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let cancellation = &self.turn.cancellation;
        if cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        // The executor mends arguments that stop between two values; in a cut answer that would
        // run half of what the model meant.
        if self.is_cut && serde_json::from_str::<IgnoredAny>(&request.arguments).is_err() {
            return Err(ToolFailure::invalid(
                "the answer reached its longest length in the middle of the arguments; call again \
                 with shorter ones",
            ));
        }
        let call = ToolCall { context, arguments: Arc::from(request.arguments.as_str()) };
        let too_late = async {
            cancellation.cancelled().await;
            sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            ended = self.executor.execute(call) => ended,
            () = too_late => Err(ToolFailure::Cancelled { executed: Executed::Unknown }),
        }
    }

    fn context(&self, tool_name: &str) -> ToolContext {
        let setup = self.turn.setup;
        let agent = setup.definition.name.clone();
        let mut context = ToolContext::new(tool_name, self.turn.session_id.clone(), agent);
        let tool = setup.registry.get(tool_name);
        let own = tool.and_then(|tool| tool.registration().timeout_ms).map(Duration::from_millis);
        let timeout = setup.definition.tool_timeout.max(own.unwrap_or_default());
        context.deadline = (Instant::now() + timeout).min(self.turn.deadline);
        context.cancellation = self.turn.cancellation.child_token();
        context.scope = self.turn.scope.clone();
        context
    }

    /// Whether the calls that ended so far are too many time-outs in a row.
    pub(super) fn timed_out_too_often(&self) -> bool {
        self.streak().is_over()
    }

    /// The turn's streak with these calls.
    pub(super) fn into_streak(self) -> TimeoutStreak {
        self.streak()
    }

    fn streak(&self) -> TimeoutStreak {
        let mut streak = self.turn.streak.clone();
        self.ended().values().for_each(|timed_out| streak.count(timed_out.clone()));
        streak
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<usize, Option<TimedOutCall>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A result as the model reads it. A tool that failed in its own words is told from one that did
/// not, and no result is empty, which some servers refuse.
fn model_text(result: &ToolResult) -> String {
    let text = result.to_text();
    match (result.is_error, text.trim().is_empty()) {
        (false, false) => text.into_owned(),
        (false, true) => "(the tool returned nothing)".to_owned(),
        (true, true) => "(tool failed: it did not say why)".to_owned(),
        (true, false) => format!("(tool failed)\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_timeouts_in_a_row_count() {
        let slow =
            || Some(TimedOutCall { tool_name: "slow".to_owned(), executed: Executed::Unknown });
        let mut streak = TimeoutStreak::new(2);
        streak.count(slow());
        streak.count(None);
        streak.count(slow());
        assert!(!streak.is_over());
        streak.count(slow());
        streak.count(None);
        assert!(streak.is_over(), "a later success does not undo it");
        assert_eq!(streak.timed_out().len(), 2);
    }

    #[test]
    fn a_failure_in_the_tools_own_words_reads_as_one() {
        assert_eq!(model_text(&ToolResult::text("fine")), "fine");
        assert_eq!(model_text(&ToolResult::error("exit code 1")), "(tool failed)\nexit code 1");
        assert!(!model_text(&ToolResult::default()).is_empty());
    }
}
