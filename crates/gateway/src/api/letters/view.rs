//! Dead letters as responses show them.

use rockbot_contracts::{
    Envelope, Message, ToolHints, ToolInvokeRequest, json::Limits, script::ScriptInvokeRequest,
};
use rockbot_monitor::{WorkQueue, letters::SenderCheck};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::fleet::state_name;

/// Largest part of a body that is shown, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The queues with dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LetterQueues {
    pub(crate) queues: Vec<LetterQueueView>,
}

/// The dead letters of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LetterQueueView {
    /// The work queue.
    name: String,
    /// State of its dead-letter queue: `present`, `missing`, or `refused` if this user may not inspect it.
    state: &'static str,
    /// Number of dead letters, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters: Option<u32>,
}

impl From<&WorkQueue> for LetterQueueView {
    fn from(queue: &WorkQueue) -> Self {
        Self {
            name: queue.name.to_string(),
            state: state_name(queue.dead_letters),
            dead_letters: queue.dead_letters.depth().map(|depth| depth.ready),
        }
    }
}

/// Dead letters, oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LetterPage {
    /// The work queue.
    pub(crate) queue: String,
    /// Number of dead letters in the queue.
    pub(crate) waiting: u32,
    /// The oldest of them.
    pub(crate) letters: Vec<LetterView>,
}

/// A dead letter. Its texts are untrusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LetterView {
    /// Its message id.
    message_id: String,
    /// Type of the message.
    #[serde(rename = "type")]
    kind: String,
    /// Its correlation id.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    /// The sender that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The broker user of its sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// The address of replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    /// Time of its sending in Unix milliseconds, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_ms: Option<u64>,
    /// Number of the attempt.
    attempt: u32,
    /// Why it was dead-lettered.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Size of its body.
    bytes: u64,
    /// The tool that it calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// Why a replay leaves it: its sender may be another than the caller that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    /// Forecast for a call that had started: `runs_again` or `outcome_unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    if_started: Option<&'static str>,
}

impl LetterView {
    /// Describes a letter. `hints` returns the hints of a tool that a handler announces.
    pub(crate) fn new(
        letter: &Envelope,
        senders: &SenderCheck,
        hints: impl Fn(&str) -> Option<ToolHints>,
    ) -> Self {
        let tool = tool_of(letter);
        let forecast = tool
            .as_deref()
            .and_then(hints)
            .map(|hints| if hints.may_retry() { "runs_again" } else { "outcome_unknown" });
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            message_id: letter.message_id.to_string(),
            kind: letter.message_type().to_owned(),
            correlation_id: text(letter.correlation_id.as_deref()),
            source: text(letter.source.as_deref()),
            user: text(letter.user_id.as_deref()),
            reply_to: letter.reply_to.as_ref().map(ToString::to_string),
            sent_ms: (letter.timestamp > 0).then(|| letter.timestamp.saturating_mul(1000)),
            attempt: letter.attempt,
            reason: text(letter.dead_letter_reason.as_deref()),
            bytes: letter.body.len() as u64,
            tool,
            refusal: senders.refusal(letter),
            if_started: forecast,
        }
    }
}

/// Returns the tool that a letter calls.
fn tool_of(letter: &Envelope) -> Option<String> {
    match letter.message_type() {
        ToolInvokeRequest::TYPE => {
            let request = letter.decode::<ToolInvokeRequest>(Limits::default()).ok()?;
            Some(request.tool_name.chars().take(128).collect())
        }
        ScriptInvokeRequest::TYPE => Some("script".to_owned()),
        _ => None,
    }
}

/// A dead letter with its body.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LetterDetails {
    /// The letter.
    #[serde(flatten)]
    letter: LetterView,
    /// Its body as text, at most 64 KiB.
    body: String,
    /// Number of bytes left out.
    body_left_out: u64,
}

impl LetterDetails {
    pub(crate) fn new(letter: LetterView, body: &[u8]) -> Self {
        let shown = &body[..body.len().min(MAX_BODY_BYTES)];
        let body_left_out = (body.len() - shown.len()) as u64;
        Self { letter, body: String::from_utf8_lossy(shown).into_owned(), body_left_out }
    }
}

/// A letter that a replay leaves.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefusalView {
    /// Its message id.
    pub(crate) message_id: String,
    /// The reason.
    pub(crate) reason: String,
}

/// Result of a replay.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayResultView {
    /// Nothing was changed: the result is what a replay would do.
    pub(crate) dry_run: bool,
    /// The letters that were sent again.
    pub(crate) replayed: Vec<String>,
    /// The letters that stay.
    pub(crate) refused: Vec<RefusalView>,
    /// Number of dead letters left in the queue.
    pub(crate) left: u32,
    /// The error that stopped the replay early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

/// Result of a purge.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PurgeView {
    /// Nothing was changed: the result is what a purge would do.
    pub(crate) dry_run: bool,
    /// The letters that were deleted.
    pub(crate) deleted: Vec<String>,
    /// Number of dead letters left in the queue.
    pub(crate) left: u32,
    /// The error that stopped the purge early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}
