//! Spending of turns: model calls, tokens, tool calls and costs.

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{Spending, TurnUsage};
use rockbot_llm::Usage;
use rockbot_tools::Budget;

use crate::behavior::ModelBehavior;

/// Spending of a running turn, shared by its concurrent tool calls.
#[derive(Debug)]
pub(crate) struct TurnMeter {
    /// Spending in other processes, which ran the turn before.
    before: TurnUsage,
    /// Spending in this process.
    spent: Mutex<TurnUsage>,
    /// Spending on models that is not recorded yet.
    unrecorded: Mutex<Spending>,
    /// The budget of the turn, to which its spending is booked.
    budget: Budget,
}

impl TurnMeter {
    /// Creates the meter of a turn on which other processes spent `before`, and started `delegations`
    /// turns.
    pub(crate) fn new(budget: Budget, before: TurnUsage, delegations: u64) -> Self {
        budget.restore(before.turn, delegations);
        Self { before, spent: Mutex::default(), unrecorded: Mutex::default(), budget }
    }

    /// Returns the budget of the turn.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the spending on models since the last call.
    pub(crate) fn take_unrecorded(&self) -> Spending {
        std::mem::take(&mut *self.unrecorded.lock())
    }

    /// Returns the spending in this process.
    pub(crate) fn own(&self) -> Spending {
        self.spent().turn
    }

    /// Starts to meter a model call that the server has accepted. It counts when the returned value is
    /// dropped, also if its stream fails or the turn is cancelled: the provider charges for it.
    pub(crate) fn start_model_call<'a>(&'a self, behavior: &'a ModelBehavior) -> MeteredCall<'a> {
        MeteredCall { meter: self, behavior, usage: None }
    }

    /// Records a model call. Not every server reports its usage.
    fn record_model_call(&self, usage: Option<Usage>, behavior: &ModelBehavior) {
        let mut spent = Spending { model_calls: 1, ..Spending::default() };
        match usage {
            Some(usage) => {
                spent.prompt_tokens = usage.prompt_tokens;
                spent.completion_tokens = usage.completion_tokens;
                match usage.cost_micros.or_else(|| cost(usage, behavior)) {
                    Some(micros) => spent.cost_micros = micros,
                    None => spent.unpriced_calls = 1,
                }
            }
            None => (spent.unmetered_calls, spent.unpriced_calls) = (1, 1),
        }
        self.spent().turn += spent;
        *self.unrecorded.lock() += spent;
        self.budget.charge(spent);
    }

    /// Records tool calls with the arguments and results of these sizes, in bytes.
    pub(crate) fn record_tool_calls(&self, calls: u64, bytes_in: usize, bytes_out: usize) {
        let spent = Spending {
            tool_calls: calls,
            tool_bytes_in: bytes_in as u64,
            tool_bytes_out: bytes_out as u64,
            ..Spending::default()
        };
        self.spent().turn += spent;
        self.budget.charge(spent);
    }

    /// Records the spending of a sub-agent, which is booked to the budget.
    pub(crate) fn record_child(&self, child: Spending) {
        let mut spent = self.spent();
        spent.turn += child;
        spent.children += child;
    }

    /// Returns the usage of the turn. `before` is the spending of earlier turns of the conversation.
    pub(crate) fn finish(&self, before: Spending) -> TurnUsage {
        let (own, mut spent, mut session) = (*self.spent(), self.before, before);
        spent.turn += own.turn;
        spent.children += own.children;
        session += spent.turn;
        TurnUsage { session, ..spent }
    }

    fn spent(&self) -> MutexGuard<'_, TurnUsage> {
        self.spent.lock()
    }
}

/// A model call in progress. Dropping it records it.
pub(crate) struct MeteredCall<'a> {
    meter: &'a TurnMeter,
    behavior: &'a ModelBehavior,
    /// The last reported usage.
    pub(crate) usage: Option<Usage>,
}

impl Drop for MeteredCall<'_> {
    fn drop(&mut self) {
        self.meter.record_model_call(self.usage, self.behavior);
    }
}

/// Total spending of an agent.
#[derive(Debug, Default)]
pub(crate) struct AgentMeter(Mutex<Spending>);

impl AgentMeter {
    pub(crate) fn add(&self, spent: Spending) {
        *self.0.lock() += spent;
    }

    pub(crate) fn total(&self) -> Spending {
        *self.0.lock()
    }
}

/// Returns the cost in µ$. Prices are in $ per million tokens, numerically the same as µ$ per token.
fn cost(usage: Usage, behavior: &ModelBehavior) -> Option<u64> {
    let (input, output) = (behavior.input_price?, behavior.output_price?);
    let micros = usage.prompt_tokens as f64 * input + usage.completion_tokens as f64 * output;
    Some(micros.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_usage_includes_child_turns() {
        let behavior = ModelBehavior {
            input_price: Some(2.0),
            output_price: Some(10.0),
            ..ModelBehavior::default()
        };
        let usage = |cost_micros| Usage { prompt_tokens: 100, completion_tokens: 5, cost_micros };
        let meter = TurnMeter::new(Budget::unlimited(), TurnUsage::default(), 0);
        meter.record_model_call(Some(usage(None)), &behavior);
        meter.record_model_call(Some(usage(Some(7))), &behavior);
        meter.record_model_call(None, &behavior);
        meter.record_tool_calls(1, 10, 20);
        let child = Spending { model_calls: 2, cost_micros: 3, ..Spending::default() };
        meter.record_child(child);
        let before = Spending { model_calls: 1, ..Spending::default() };
        let TurnUsage { turn, children, session } = meter.finish(before);
        let expected = Spending {
            model_calls: 5,
            prompt_tokens: 200,
            completion_tokens: 10,
            unmetered_calls: 1,
            tool_calls: 1,
            tool_bytes_in: 10,
            tool_bytes_out: 20,
            cost_micros: 260,
            unpriced_calls: 1,
        };
        assert_eq!(turn, expected);
        assert_eq!(children, child);
        assert_eq!(session, Spending { model_calls: 6, ..expected });
    }

    #[test]
    fn missing_prices_count_as_unpriced_calls() {
        let meter = TurnMeter::new(Budget::unlimited(), TurnUsage::default(), 0);
        let usage = Usage { prompt_tokens: 1, completion_tokens: 1, cost_micros: None };
        meter.record_model_call(Some(usage), &ModelBehavior::default());
        let turn = meter.finish(Spending::default()).turn;
        assert_eq!((turn.cost_micros, turn.unpriced_calls), (0, 1));
    }
}
