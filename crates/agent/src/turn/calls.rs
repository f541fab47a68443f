//! Tool calls of one model answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{ContentBlock, Executed, ToolCallId, ToolErrorCode};
use rockbot_llm::{Media, ModelCapabilities, ToolCallRequest};
use rockbot_memory::MemoryOwner;
use rockbot_tools::{ToolCall, ToolContext, ToolFailure, ToolResult};
use serde::de::IgnoredAny;
use tokio::time::{Instant, sleep};

use super::Turn;
use crate::{
    event::{CallEvents, display_line},
    large_results::{CHUNK_READER, LongResult, TrustedHint},
};

/// Time limit for a cancelled tool to report whether it ran. Remote tools need a reply from another
/// process.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Maximum number of images and recordings of a result; the most that a request has.
const MAX_RESULT_MEDIA: usize = 16;

/// A call and its position in the answer.
#[derive(Debug, Clone)]
pub(super) struct PendingCall {
    pub(super) position: usize,
    pub(super) request: ToolCallRequest,
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
    turn: &'a Turn<'a>,
    is_truncated: bool,
    outcomes: Mutex<BTreeMap<usize, Option<TimedOutCall>>>,
    /// Images and recordings of the results, by the position of the call.
    media: Mutex<BTreeMap<usize, Vec<Media>>>,
}

impl<'a> CallRunner<'a> {
    /// `is_truncated` is true if the answer reached the maximum length.
    pub(super) fn new(turn: &'a Turn<'_>, is_truncated: bool) -> Self {
        Self { turn, is_truncated, outcomes: Mutex::default(), media: Mutex::default() }
    }

    /// Runs one call and returns the text for the model.
    pub(super) async fn call(&self, call: PendingCall) -> String {
        let PendingCall { position, request } = call;
        let context = self.context(self.turn.names.own(&request.name));
        let (owner, call) = (MemoryOwner::from_context(&context), context.tool_call_id.clone());
        let result = self.run(&request, context).await;
        let timed_out = match &result {
            Err(failure) if failure.code() == ToolErrorCode::Timeout => Some(TimedOutCall {
                tool_name: display_line(&request.name, 64),
                executed: failure.executed(),
            }),
            _ => None,
        };
        self.outcomes().insert(position, timed_out);
        let meter = &self.turn.meter;
        let text = match result {
            Ok(result) => {
                if let Some(child) = &result.child_spending {
                    meter.record_child(**child);
                }
                let (media, notes) = result_media(&result, &self.turn.setup.capabilities);
                self.media.lock().insert(position, media);
                let text = self.render(&request.name, &call, &owner, &result).await;
                notes.into_iter().fold(text, |text, note| text + "\n" + &note)
            }
            Err(failure) => failure.model_text(),
        };
        meter.record_tool_call(request.arguments.len(), text.len());
        text
    }

    /// Returns the text that the model sees of a result.
    async fn render(
        &self,
        name: &str,
        call: &ToolCallId,
        owner: &MemoryOwner,
        result: &ToolResult,
    ) -> String {
        let Turn { setup, scope, names, .. } = self.turn;
        let chunk_reader = setup.registry.get(CHUNK_READER);
        let name = names.own(name);
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

    async fn run(
        &self,
        request: &ToolCallRequest,
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

    /// Returns `true` if the finished calls exceed the limit of consecutive timeouts.
    pub(super) fn timeouts_exceeded(&self) -> bool {
        self.streak().is_over()
    }

    /// Takes the images and recordings of the results, by the position of the call.
    pub(super) fn take_media(&self) -> BTreeMap<usize, Vec<Media>> {
        std::mem::take(&mut self.media.lock())
    }

    /// Returns the streak of the turn including these calls.
    pub(super) fn into_streak(self) -> TimeoutStreak {
        self.streak()
    }

    fn streak(&self) -> TimeoutStreak {
        let mut streak = self.turn.streak.clone();
        self.outcomes().values().for_each(|timed_out| streak.count(timed_out.clone()));
        streak
    }

    fn outcomes(&self) -> MutexGuard<'_, BTreeMap<usize, Option<TimedOutCall>>> {
        self.outcomes.lock()
    }
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
        (true, true) => "(tool failed without a message)".to_owned(),
        (true, false) => format!("(tool failed)\n{text}"),
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
        assert_eq!(model_text(&ToolResult::error("exit code 1")), "(tool failed)\nexit code 1");
        assert!(!model_text(&ToolResult::default()).is_empty());
    }
}
