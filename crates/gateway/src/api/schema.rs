//! Shapes that several responses share.

use rockbot_contracts::{CallStages, Spending, ToolHints, TurnUsage};
use serde::Serialize;
use utoipa::ToSchema;

/// Usage of a turn or a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpendingView {
    /// Calls of a model.
    pub(crate) model_calls: u64,
    /// Prompt tokens, as far as they were reported.
    pub(crate) prompt_tokens: u64,
    /// Completion tokens, as far as they were reported.
    pub(crate) completion_tokens: u64,
    /// Model calls whose tokens were not reported.
    pub(crate) unmetered_calls: u64,
    /// Tool calls.
    pub(crate) tool_calls: u64,
    /// Bytes of their arguments.
    pub(crate) tool_bytes_in: u64,
    /// Bytes of their results.
    pub(crate) tool_bytes_out: u64,
    /// Millionths of a US dollar, as far as prices are known.
    pub(crate) cost_micros: u64,
    /// Model calls whose price is unknown.
    pub(crate) unpriced_calls: u64,
}

impl From<Spending> for SpendingView {
    fn from(spending: Spending) -> Self {
        Self {
            model_calls: spending.model_calls,
            prompt_tokens: spending.prompt_tokens,
            completion_tokens: spending.completion_tokens,
            unmetered_calls: spending.unmetered_calls,
            tool_calls: spending.tool_calls,
            tool_bytes_in: spending.tool_bytes_in,
            tool_bytes_out: spending.tool_bytes_out,
            cost_micros: spending.cost_micros,
            unpriced_calls: spending.unpriced_calls,
        }
    }
}

/// Usage of a turn, and of its conversation so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageView {
    /// The turn, with the loops of other agents that it started.
    pub(crate) turn: SpendingView,
    /// The share of the loops of other agents.
    pub(crate) children: SpendingView,
    /// The conversation so far.
    pub(crate) session: SpendingView,
}

impl From<TurnUsage> for UsageView {
    fn from(usage: TurnUsage) -> Self {
        let TurnUsage { turn, children, session } = usage;
        Self { turn: turn.into(), children: children.into(), session: session.into() }
    }
}

/// Possible effects of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HintsView {
    /// It changes nothing.
    pub(crate) read_only: bool,
    /// It may delete or overwrite data.
    pub(crate) destructive: bool,
    /// Repeating a call has no further effect.
    pub(crate) idempotent: bool,
    /// It accesses external systems.
    pub(crate) open_world: bool,
}

impl From<ToolHints> for HintsView {
    fn from(hints: ToolHints) -> Self {
        let ToolHints { read_only, destructive, idempotent, open_world } = hints;
        Self { read_only, destructive, idempotent, open_world }
    }
}

/// Returns the name of a value on the wire; empty for a value that is no text there.
pub(crate) fn name_of(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Durations of the stages of a call, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StagesView {
    /// From the publishing of the request to its receipt by the handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ms: Option<u64>,
    /// From the receipt to the start of the tool.
    start_ms: u64,
    /// From the start of the tool to its end.
    run_ms: u64,
}

impl From<CallStages> for StagesView {
    fn from(stages: CallStages) -> Self {
        let CallStages { queue_ms, start_ms, run_ms } = stages;
        Self { queue_ms, start_ms, run_ms }
    }
}
