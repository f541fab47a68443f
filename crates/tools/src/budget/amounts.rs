//! Amounts of a budget.

use rockbot_contracts::Spending;

use super::limits::BudgetLimits;

/// Amounts that are limited, granted or used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) model_calls: u64,
    pub(super) tokens: u64,
    pub(super) cost_micros: u64,
    pub(super) tool_calls: u64,
    pub(super) delegations: u64,
}

impl Amounts {
    /// As much as anything can use.
    pub(super) const UNLIMITED: Self = Self {
        model_calls: u64::MAX,
        tokens: u64::MAX,
        cost_micros: u64::MAX,
        tool_calls: u64::MAX,
        delegations: u64::MAX,
    };

    fn combined(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            model_calls: combine(self.model_calls, other.model_calls),
            tokens: combine(self.tokens, other.tokens),
            cost_micros: combine(self.cost_micros, other.cost_micros),
            tool_calls: combine(self.tool_calls, other.tool_calls),
            delegations: combine(self.delegations, other.delegations),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        *self = self.combined(other, u64::saturating_add);
    }

    /// Subtracts `other`; no amount falls below 0.
    pub(super) fn without(self, other: Self) -> Self {
        self.combined(other, u64::saturating_sub)
    }

    pub(super) fn divided(self, parts: u64) -> Self {
        let parts = parts.max(1);
        let parts = Self {
            model_calls: parts,
            tokens: parts,
            cost_micros: parts,
            tool_calls: parts,
            delegations: parts,
        };
        self.combined(parts, |amount, parts| amount / parts)
    }

    /// Returns `true` if no amount exceeds that of `left`.
    pub(super) fn fits(self, left: Self) -> bool {
        self.without(left) == Self::default()
    }

    pub(super) fn into_limits(self, depth: u32) -> BudgetLimits {
        let Self { model_calls, tokens, cost_micros, tool_calls, delegations } = self;
        let cost_micros = Some(cost_micros).filter(|micros| *micros < u64::MAX);
        BudgetLimits { model_calls, tokens, cost_micros, tool_calls, delegations, depth }
    }
}

impl From<Spending> for Amounts {
    fn from(spent: Spending) -> Self {
        Self {
            model_calls: spent.model_calls,
            tokens: spent.prompt_tokens.saturating_add(spent.completion_tokens),
            cost_micros: spent.cost_micros,
            tool_calls: spent.tool_calls,
            delegations: 0,
        }
    }
}

impl From<BudgetLimits> for Amounts {
    fn from(limits: BudgetLimits) -> Self {
        let BudgetLimits { model_calls, tokens, cost_micros, tool_calls, delegations, .. } = limits;
        let cost_micros = cost_micros.unwrap_or(u64::MAX);
        Self { model_calls, tokens, cost_micros, tool_calls, delegations }
    }
}
