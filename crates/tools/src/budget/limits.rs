//! The configured limits of a budget.

use serde::{Deserialize, Serialize};

/// The most that may be spent on one message of a user: by its turn, and by all turns that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetLimits {
    /// Requests to models. One is held back for the answer of each turn. Default 200, at least 2.
    pub model_calls: u64,
    /// Prompt and completion tokens, as far as the model servers report them. Default 2,000,000.
    pub tokens: u64,
    /// Millionths of a US dollar, as far as prices are known. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Tool calls. Default 500.
    pub tool_calls: u64,
    /// Turns that other turns start. Default 32.
    pub delegations: u64,
    /// Levels of turns below the first one. Default 3.
    pub depth: u32,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            model_calls: 200,
            tokens: 2_000_000,
            cost_micros: None,
            tool_calls: 500,
            delegations: 32,
            depth: 3,
        }
    }
}

impl BudgetLimits {
    /// Returns all problems of the limits, each with the key below `name`.
    #[must_use]
    pub fn validate(&self, name: &str) -> Vec<String> {
        let mut problems = Vec::new();
        if self.model_calls < 2 {
            problems.push(format!("{name}.model_calls: must be at least 2"));
        }
        if self.tokens == 0 {
            problems.push(format!("{name}.tokens: must be at least 1"));
        }
        if self.cost_micros == Some(0) {
            problems.push(format!("{name}.cost_micros: must be at least 1; omit it for no limit"));
        }
        problems
    }
}
