//! Adds up what turns take, and what it costs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rockbot_contracts::{Spending, TurnUsage};
use rockbot_llm::Usage;

use crate::behaviour::ModelBehaviour;

/// What one turn took so far. Its tool calls run side by side, so it is shared.
#[derive(Debug, Default)]
pub(crate) struct TurnAccount {
    spent: Mutex<TurnUsage>,
}

impl TurnAccount {
    /// A model answered, and its server may have told what that took.
    pub(crate) fn model_answered(&self, usage: Option<Usage>, prices: &ModelBehaviour) {
        let mut spent = Spending { model_calls: 1, ..Spending::default() };
        match usage {
            Some(usage) => {
                spent.prompt_tokens = usage.prompt_tokens;
                spent.completion_tokens = usage.completion_tokens;
                match usage.cost_micros.or_else(|| cost(usage, prices)) {
                    Some(micros) => spent.cost_micros = micros,
                    None => spent.unpriced_calls = 1,
                }
            }
            None => (spent.unmetered_calls, spent.unpriced_calls) = (1, 1),
        }
        self.spent().turn += spent;
    }

    /// A tool call ended.
    pub(crate) fn tool_ended(&self, bytes_in: usize, bytes_out: usize) {
        self.spent().turn += Spending {
            tool_calls: 1,
            tool_bytes_in: bytes_in as u64,
            tool_bytes_out: bytes_out as u64,
            ..Spending::default()
        };
    }

    /// Another agent ran a loop for this turn.
    pub(crate) fn child_ended(&self, child: Spending) {
        let mut spent = self.spent();
        spent.turn += child;
        spent.children += child;
    }

    /// What the turn took, after a conversation that took `before`.
    pub(crate) fn closed(&self, before: Spending) -> TurnUsage {
        let spent = *self.spent();
        let mut session = before;
        session += spent.turn;
        TurnUsage { session, ..spent }
    }

    fn spent(&self) -> MutexGuard<'_, TurnUsage> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an agent took in all.
#[derive(Debug, Default)]
pub(crate) struct AgentAccount(Mutex<Spending>);

impl AgentAccount {
    pub(crate) fn add(&self, spent: Spending) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += spent;
    }

    pub(crate) fn total(&self) -> Spending {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A price for a million tokens in dollars is one for a token in millionths of a dollar.
fn cost(usage: Usage, prices: &ModelBehaviour) -> Option<u64> {
    let (input, output) = (prices.input_price?, prices.output_price?);
    let micros = usage.prompt_tokens as f64 * input + usage.completion_tokens as f64 * output;
    Some(micros.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_sum_of_what_it_took_itself_and_through_others() {
        let prices = ModelBehaviour {
            input_price: Some(2.0),
            output_price: Some(10.0),
            ..ModelBehaviour::default()
        };
        let usage = |cost_micros| Usage { prompt_tokens: 100, completion_tokens: 5, cost_micros };
        let account = TurnAccount::default();
        account.model_answered(Some(usage(None)), &prices);
        account.model_answered(Some(usage(Some(7))), &prices);
        account.model_answered(None, &prices);
        account.tool_ended(10, 20);
        let child = Spending { model_calls: 2, cost_micros: 3, ..Spending::default() };
        account.child_ended(child);
        let before = Spending { model_calls: 1, ..Spending::default() };
        let TurnUsage { turn, children, session } = account.closed(before);
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
    fn without_prices_nothing_is_priced() {
        let account = TurnAccount::default();
        let usage = Usage { prompt_tokens: 1, completion_tokens: 1, cost_micros: None };
        account.model_answered(Some(usage), &ModelBehaviour::default());
        let turn = account.closed(Spending::default()).turn;
        assert_eq!((turn.cost_micros, turn.unpriced_calls), (0, 1));
    }
}
