//! Tool calls of one model answer.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{ContentBlock, Executed, Spending, ToolCallId, ToolErrorCode};
use rockbot_llm::{Media, ModelCapabilities};
use rockbot_memory::MemoryOwner;
use rockbot_tools::{
    ToolCall, ToolContext, ToolFailure, ToolResult, ToolSource, registry::RegisteredTool,
};
use serde::de::IgnoredAny;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::{Turn, ended_calls::EndedCalls};
use crate::{
    conversation::{CallEntry, ConversationEntry, ConversationError, ResultEntry},
    event::{CallEvents, display_line},
    large_results::{CHUNK_READER, LongResult, TrustedHint},
    tool_names::MCP_INVOKE_TOOL,
};

/// Time limit for a cancelled tool to report whether it ran. Remote tools need a reply from another
/// process.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Time limit for turns that a call started to end after it. Their own calls have [`CANCEL_GRACE`].
const CHILDREN_GRACE: Duration = Duration::from_secs(8);

/// Maximum number of images and recordings of a result; the most that a request has.
pub(super) const MAX_RESULT_MEDIA: usize = 16;

/// Returns `true` for a tool that calls an MCP server.
fn calls_mcp_server(tool: Option<&RegisteredTool>, name: &str) -> bool {
    let source = tool.map(|tool| &tool.registration().source);
    name == MCP_INVOKE_TOOL || matches!(source, Some(ToolSource::Mcp(_)))
}

/// A call that timed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimedOutCall {
    pub(super) tool_name: String,
    pub(super) executed: Executed,
}

/// Consecutive timeouts of calls, across the answers of a turn.
#[derive(Debug, Clone)]
pub(super) struct TimeoutStreak {
    most: usize,
    calls: Vec<TimedOutCall>,
}

impl TimeoutStreak {
    pub(super) fn new(most: u32) -> Self {
        Self { most: most as usize, calls: Vec::new() }
    }

    /// Records the outcome of the next call. A streak that reached the limit is never reset.
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
pub(super) struct CallRunner<'a> {
    pub(super) turn: &'a Turn<'a>,
    is_truncated: bool,
    /// Id of the first call of the answer.
    step: Option<ToolCallId>,
    state: Mutex<State>,
}

struct State {
    /// The text for the model of each call, in their order.
    texts: Vec<Option<String>>,
    /// The finished calls, by position; `Some` for those that timed out.
    outcomes: BTreeMap<usize, Option<TimedOutCall>>,
    /// Positions of the calls that failed.
    failed: HashSet<usize>,
    /// Images and recordings of the results, by position.
    media: BTreeMap<usize, Vec<Media>>,
    /// Why a result could not be recorded.
    failure: Option<ConversationError>,
}

impl<'a> CallRunner<'a> {
    /// `is_truncated` is true if the answer reached the maximum length. `recorded` are the results that
    /// other processes recorded.
    pub(super) fn new(
        turn: &'a Turn<'_>,
        is_truncated: bool,
        calls: &[CallEntry],
        recorded: &HashMap<ToolCallId, ResultEntry>,
    ) -> Self {
        let mut state = State {
            texts: vec![None; calls.len()],
            outcomes: BTreeMap::new(),
            failed: HashSet::new(),
            media: BTreeMap::new(),
            failure: None,
        };
        for (position, call) in calls.iter().enumerate() {
            if let Some(result) = recorded.get(&call.call) {
                state.finish(position, call, result);
                state.texts[position] = Some(result.text_without_media());
            }
        }
        let step = calls.first().map(|call| call.call.clone());
        Self { turn, is_truncated, step, state: Mutex::new(state) }
    }

    /// Runs one call and records its result, unless another process continues the turn.
    pub(super) async fn call(&self, position: usize, call: &CallEntry) {
        let started = Instant::now();
        let handover = &self.turn.handover;
        if self.is_compound(call) {
            return self.call_compound(position, call).await;
        }
        let context = self.context(call);
        let owner = MemoryOwner::from_context(&context);
        let tool_name = context.tool_name.clone();
        let result = tokio::select! {
            biased;
            () = handover.cancelled() => return,
            result = self.run_attempt(call, context) => result,
        };
        let mut entry = ResultEntry {
            ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            mcp: self.turn.setup.take_mcp_use(self.turn.session_id),
            ..ResultEntry::succeeded(call.call.clone(), String::new())
        };
        entry.child = self.child_spending(&call.call, result.as_ref().ok()).await;
        match result {
            Ok(result) => {
                let (text, media) = self.render(&tool_name, &call.call, &owner, &result).await;
                entry.text = text;
                entry.media = media.len();
                self.add_media(position, media);
            }
            Err(failure) => {
                entry.text = failure.model_text();
                entry.executed = failure.executed();
                entry.error = Some(failure.code());
            }
        }
        self.record(position, call, entry).await;
    }

    /// Records that a call was not made.
    pub(super) async fn refuse(&self, position: usize, call: &CallEntry, reason: &str) {
        let failure = ToolFailure::NotPermitted { reason: reason.to_owned() };
        self.record(position, call, ResultEntry::failed(call.call.clone(), &failure)).await;
    }

    /// Returns the spending of the turns that a call started. Waits until they have ended: after a cancel
    /// or a timeout they still spend.
    pub(super) async fn child_spending(
        &self,
        call: &ToolCallId,
        result: Option<&ToolResult>,
    ) -> Spending {
        let budget = self.turn.meter.budget();
        if timeout(CHILDREN_GRACE, budget.children_ended(call)).await.is_err() {
            warn!(session_id = %self.turn.session_id, "sub-agents did not end; their spending is incomplete");
        }
        let mut spent = budget.take_children(call);
        if let Some(more) = result.and_then(|result| result.child_spending.as_deref()) {
            budget.restore(*more, 0);
            spent += *more;
        }
        spent
    }

    /// Records a result before the model reads it.
    pub(super) async fn record(&self, position: usize, call: &CallEntry, entry: ResultEntry) {
        let mut entry = ConversationEntry::Result(entry);
        let recorded = self.turn.recorder.record(&mut entry).await;
        let ConversationEntry::Result(entry) = entry else { return };
        if let Err(error) = recorded {
            // No other call may go on: another process makes them again, or nothing can be recorded.
            self.turn.handover.cancel();
            self.state().failure.get_or_insert(error);
            return;
        }
        let meter = &self.turn.meter;
        meter.record_child(entry.child);
        meter.record_tool_calls(1 + entry.inner_calls, call.arguments.len(), entry.text.len());
        self.state().finish(position, call, &entry);
    }

    /// Returns the text that the model sees of a result, and the images and recordings that it reads.
    pub(super) async fn render(
        &self,
        name: &str,
        call: &ToolCallId,
        owner: &MemoryOwner,
        result: &ToolResult,
    ) -> (String, Vec<Media>) {
        let (media, notes) = result_media(result, &self.turn.setup.capabilities);
        let text = self.render_text(name, call, owner, result).await;
        (notes.into_iter().fold(text, |text, note| text + "\n" + &note), media)
    }

    async fn render_text(
        &self,
        name: &str,
        call: &ToolCallId,
        owner: &MemoryOwner,
        result: &ToolResult,
    ) -> String {
        let Turn { setup, scope, .. } = self.turn;
        let chunk_reader = setup.registry.get(CHUNK_READER);
        let hint = setup.registry.get(name).and_then(|tool| {
            TrustedHint::from_details(result.details.as_ref(), &tool.registration().source)
        });
        let result = LongResult {
            tool: name,
            call,
            text: model_text(result),
            threshold: setup.behavior.max_shown_chars(),
            // About four characters per token.
            readable: setup.behavior.context_window.map_or(usize::MAX, |tokens| tokens as usize),
            can_read_chunks: chunk_reader.is_some_and(|tool| scope.permits(tool.registration())),
            hint,
        };
        setup.large_results.render(owner, result).await
    }

    /// Runs a call. One that another process may have run is never reported as not executed.
    pub(super) async fn run_attempt(
        &self,
        call: &CallEntry,
        context: ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        if !context.may_have_run {
            return self.run(call, context).await;
        }
        self.check_repeatable(call)?;
        self.run(call, context).await.map_err(ToolFailure::into_possibly_executed)
    }

    async fn run(
        &self,
        request: &CallEntry,
        context: ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let cancellation = &self.turn.cancellation;
        if cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::No });
        }
        // The executor repairs truncated JSON. In a truncated answer, that would run the tool with
        // incomplete arguments.
        if self.is_truncated && serde_json::from_str::<IgnoredAny>(&request.arguments).is_err() {
            return Err(ToolFailure::invalid(
                "the answer reached its maximum length within the arguments; call again with \
                 shorter ones",
            ));
        }
        if self.turn.tool_name(request).is_none() {
            return Err(ToolFailure::NotFound { name: request.name.clone() });
        }
        self.turn.meter.budget().begin_tool_call()?;
        let events = CallEvents::new(self.turn.progress.clone(), &context);
        let call = ToolCall { context, arguments: Arc::from(request.arguments.as_str()) };
        let cancel_timeout = async {
            cancellation.cancelled().await;
            sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            result = self.turn.setup.executor.execute_with_events(call, events.sink()) => result,
            () = cancel_timeout => {
                let failure = ToolFailure::Cancelled { executed: Executed::Unknown };
                events.finish_abandoned(&failure);
                Err(failure)
            }
        }
    }

    /// Checks whether a call that another process may have made can be made again.
    fn check_repeatable(&self, call: &CallEntry) -> Result<(), ToolFailure> {
        if self.turn.cancellation.is_cancelled() {
            return Err(ToolFailure::Cancelled { executed: Executed::Unknown });
        }
        let name = self.turn.tool_name(call);
        let tool = name.and_then(|name| self.turn.setup.registry.get(&name));
        let repeatable = tool.is_some_and(|tool| {
            tool.tool().deduplicates_calls() || tool.registration().hints.may_retry()
        });
        if repeatable { Ok(()) } else { Err(result_lost()) }
    }

    pub(super) fn context(&self, call: &CallEntry) -> ToolContext {
        let setup = self.turn.setup;
        let tool_name = self.turn.tool_name(call);
        let tool_name = tool_name.as_deref().unwrap_or(&call.name);
        let agent = setup.definition.name.clone();
        let mut context = ToolContext::new(tool_name, self.turn.session_id.clone(), agent);
        let tool = setup.registry.get(tool_name);
        let own = tool
            .as_ref()
            .and_then(|tool| tool.registration().timeout_ms)
            .map(Duration::from_millis);
        let timeout = setup.definition.tool_timeout.max(own.unwrap_or_default());
        context.tool_call_id = call.call.clone();
        context.may_have_run = self.turn.may_have_run(&call.call);
        // A call that waited for its approval was not requested before.
        context.attempt = if context.may_have_run { self.turn.start.attempt } else { 1 };
        context.input = setup.approvals.as_ref().and_then(|approvals| {
            approvals.user_of(&context.session_id, &context.tool_call_id, &context.agent)
        });
        let timeout = match &setup.approvals {
            // A call of an MCP server may wait for its user. A silent server is limited by its bridge.
            Some(approvals)
                if context.input.is_some() && calls_mcp_server(tool.as_deref(), tool_name) =>
            {
                timeout + approvals.expiry()
            }
            _ => timeout,
        };
        context.deadline = (Instant::now() + timeout).min(self.turn.deadline);
        context.cancellation = self.turn.cancellation.child_token();
        context.handover = self.turn.handover.clone();
        context.scope = self.turn.scope.clone();
        context.step = self.step.clone();
        context.budget = Some(self.turn.meter.budget().clone());
        context
    }

    /// Returns `true` if the finished calls exceed the limit of consecutive timeouts.
    pub(super) fn timeouts_exceeded(&self) -> bool {
        self.streak().is_over()
    }

    /// Adds the images and recordings of a result.
    pub(super) fn add_media(&self, position: usize, media: Vec<Media>) {
        self.state().media.insert(position, media);
    }

    /// Takes the images and recordings of the results, by the position of the call.
    pub(super) fn take_media(&self) -> BTreeMap<usize, Vec<Media>> {
        std::mem::take(&mut self.state().media)
    }

    /// Returns how the calls ended so far.
    pub(super) fn ended(&self) -> EndedCalls {
        let state = self.state();
        let (failed, succeeded) =
            state.outcomes.keys().partition(|position| state.failed.contains(position));
        EndedCalls { succeeded, failed }
    }

    /// Returns the streak of the turn including these calls, the text of each call that has a result, and
    /// why a result could not be recorded.
    pub(super) fn finish(self) -> (TimeoutStreak, Vec<Option<String>>, Option<ConversationError>) {
        let streak = self.streak();
        let State { texts, failure, .. } = self.state.into_inner();
        (streak, texts, failure)
    }

    fn streak(&self) -> TimeoutStreak {
        let mut streak = self.turn.streak.clone();
        self.state().outcomes.values().for_each(|timed_out| streak.count(timed_out.clone()));
        streak
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn finish(&mut self, position: usize, call: &CallEntry, result: &ResultEntry) {
        let timed_out = result.error == Some(ToolErrorCode::Timeout);
        let timed_out = timed_out.then(|| TimedOutCall {
            tool_name: display_line(&call.name, 64),
            executed: result.executed,
        });
        self.outcomes.insert(position, timed_out);
        if result.error.is_some() {
            self.failed.insert(position);
        }
        self.texts[position] = Some(result.text.clone());
    }
}

/// Returns the failure of a call that another process may have made, and that is not made again.
pub(super) fn result_lost() -> ToolFailure {
    let message = "the process that called the tool was lost before the result was recorded";
    ToolFailure::OutcomeUnknown { message: message.to_owned() }
}

/// Returns the images and recordings that the model reads, and notes for the others.
fn result_media(
    result: &ToolResult,
    capabilities: &ModelCapabilities,
) -> (Vec<Media>, Vec<String>) {
    let to_media = |block: &ContentBlock| match block {
        ContentBlock::Image { data, .. } | ContentBlock::Audio { data, .. } => {
            Some(Media::from_base64(data))
        }
        ContentBlock::Text { .. } | ContentBlock::Resource { .. } => None,
    };
    let (mut readable, mut notes) = (Vec::new(), Vec::new());
    let mut found = result.content.iter().filter_map(to_media);
    for media in found.by_ref().take(MAX_RESULT_MEDIA) {
        match media.map(|media| (capabilities.unread_note(&media), media)) {
            Ok((None, media)) => readable.push(media),
            Ok((Some(note), _)) => notes.push(note),
            Err(error) => notes.push(format!("[left out: an image or recording; {error}]")),
        }
    }
    let more = found.count();
    if more > 0 {
        notes.push(format!("[left out: {more} more images or recordings]"));
    }
    (readable, notes)
}

/// Renders a result for the model. Failures are marked, and no text is empty because some servers reject
/// empty results.
fn model_text(result: &ToolResult) -> String {
    let text = result.to_text();
    match (result.is_error, text.trim().is_empty()) {
        (false, false) => text.into_owned(),
        (false, true) => "(the tool returned nothing)".to_owned(),
        (true, true) => "(tool failed: no message)".to_owned(),
        (true, false) => format!("(tool failed: {text})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streak_counts_only_consecutive_timeouts() {
        let slow =
            || Some(TimedOutCall { tool_name: "slow".to_owned(), executed: Executed::Unknown });
        let mut streak = TimeoutStreak::new(2);
        streak.count(slow());
        streak.count(None);
        streak.count(slow());
        assert!(!streak.is_over());
        streak.count(slow());
        streak.count(None);
        assert!(streak.is_over(), "a later success does not reset it");
        assert_eq!(streak.timed_out().len(), 2);
    }

    #[test]
    fn media_of_a_result_is_bounded() {
        let data = "iVBORw0KGgo=".to_owned();
        let image = ContentBlock::Image { data, mime_type: "image/png".to_owned() };
        let result = ToolResult { content: vec![image; 20], ..ToolResult::default() };
        let reads = ModelCapabilities { images: true, ..ModelCapabilities::for_model("unknown") };
        let (media, notes) = result_media(&result, &reads);
        assert_eq!((media.len(), notes.len()), (16, 1));
        assert!(notes[0].contains("4 more"), "{notes:?}");
        let (media, notes) = result_media(&result, &ModelCapabilities { images: false, ..reads });
        assert_eq!((media.len(), notes.len()), (0, 17));
    }

    #[test]
    fn model_text_marks_failures_and_is_never_empty() {
        assert_eq!(model_text(&ToolResult::text("fine")), "fine");
        assert_eq!(model_text(&ToolResult::error("exit code 1")), "(tool failed: exit code 1)");
        assert!(!model_text(&ToolResult::default()).is_empty());
    }
}
