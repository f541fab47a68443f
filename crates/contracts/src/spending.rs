//! Usage of a turn: model calls, tokens, tool calls, bytes and money.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Usage of a turn, a conversation or an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spending {
    /// Calls of a model.
    pub model_calls: u64,
    /// Prompt tokens, as far as the model servers reported them.
    pub prompt_tokens: u64,
    /// Completion tokens, as far as the model servers reported them.
    pub completion_tokens: u64,
    /// Model calls whose server reported no token counts; the sums lack them.
    pub unmetered_calls: u64,
    /// Tool calls, including refused ones.
    pub tool_calls: u64,
    /// Bytes of their arguments.
    pub tool_bytes_in: u64,
    /// Bytes of their results, as the model read them.
    pub tool_bytes_out: u64,
    /// Millionths of a US dollar, as far as prices are known.
    pub cost_micros: u64,
    /// Model calls whose price is unknown; the sum lacks them.
    pub unpriced_calls: u64,
}

impl Spending {
    /// Returns what was spent since `earlier`. No field falls below 0.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            model_calls: self.model_calls.saturating_sub(earlier.model_calls),
            prompt_tokens: self.prompt_tokens.saturating_sub(earlier.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_sub(earlier.completion_tokens),
            unmetered_calls: self.unmetered_calls.saturating_sub(earlier.unmetered_calls),
            tool_calls: self.tool_calls.saturating_sub(earlier.tool_calls),
            tool_bytes_in: self.tool_bytes_in.saturating_sub(earlier.tool_bytes_in),
            tool_bytes_out: self.tool_bytes_out.saturating_sub(earlier.tool_bytes_out),
            cost_micros: self.cost_micros.saturating_sub(earlier.cost_micros),
            unpriced_calls: self.unpriced_calls.saturating_sub(earlier.unpriced_calls),
        }
    }
}

impl AddAssign for Spending {
    fn add_assign(&mut self, other: Self) {
        let Self {
            model_calls,
            prompt_tokens,
            completion_tokens,
            unmetered_calls,
            tool_calls,
            tool_bytes_in,
            tool_bytes_out,
            cost_micros,
            unpriced_calls,
        } = self;
        for (sum, more) in [
            (model_calls, other.model_calls),
            (prompt_tokens, other.prompt_tokens),
            (completion_tokens, other.completion_tokens),
            (unmetered_calls, other.unmetered_calls),
            (tool_calls, other.tool_calls),
            (tool_bytes_in, other.tool_bytes_in),
            (tool_bytes_out, other.tool_bytes_out),
            (cost_micros, other.cost_micros),
            (unpriced_calls, other.unpriced_calls),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Usage of a turn, and of its conversation so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TurnUsage {
    /// The turn, including the loops of other agents that it started.
    pub turn: Spending,
    /// The share of the loops of other agents.
    pub children: Spending,
    /// The conversation so far, including this turn.
    pub session: Spending,
}
