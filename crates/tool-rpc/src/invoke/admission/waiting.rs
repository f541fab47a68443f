//! Calls that wait for a permit, in the order in which they get one.

use std::collections::{BTreeMap, HashMap, VecDeque};

use rockbot_contracts::AgentName;

/// Waiting calls by agent and queue, each with a value `S` that starts it. Agents are served round-robin.
#[derive(Debug)]
pub(super) struct WaitingCalls<S> {
    /// Agents with waiting calls, in round-robin order.
    turns: VecDeque<AgentName>,
    by_agent: HashMap<AgentName, BTreeMap<usize, VecDeque<Waiter<S>>>>,
    arrivals: u64,
}

/// A waiting call.
#[derive(Debug)]
pub(super) struct Waiter<S> {
    pub(super) queue: usize,
    arrival: u64,
    pub(super) start: S,
}

impl<S> Default for WaitingCalls<S> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), by_agent: HashMap::new(), arrivals: 0 }
    }
}

impl<S> WaitingCalls<S> {
    /// Adds a call of `agent` and returns its number.
    pub(super) fn add(&mut self, agent: &AgentName, queue: usize, start: S) -> u64 {
        self.arrivals += 1;
        let arrival = self.arrivals;
        if !self.by_agent.contains_key(agent) {
            self.turns.push_back(agent.clone());
        }
        let queues = self.by_agent.entry(agent.clone()).or_default();
        queues.entry(queue).or_default().push_back(Waiter { queue, arrival, start });
        arrival
    }

    /// Removes and returns the oldest call of a runnable queue of the first agent that has one, and moves
    /// that agent to the end of the round-robin order.
    pub(super) fn next(&mut self, is_runnable: impl Fn(usize) -> bool) -> Option<Waiter<S>> {
        for turn in 0..self.turns.len() {
            let oldest = self.by_agent[&self.turns[turn]]
                .iter()
                .filter(|(queue, _)| is_runnable(**queue))
                .filter_map(|(queue, waiters)| Some((waiters.front()?.arrival, *queue)))
                .min();
            let Some((_, queue)) = oldest else { continue };
            let agent = self.turns.remove(turn)?;
            self.turns.push_back(agent.clone());
            return self.take(&agent, queue, VecDeque::pop_front);
        }
        None
    }

    /// Removes a call, if it still waits.
    pub(super) fn remove(&mut self, agent: &AgentName, queue: usize, arrival: u64) -> bool {
        let removed = self.take(agent, queue, |waiters| {
            let at = waiters.binary_search_by_key(&arrival, |waiter| waiter.arrival).ok()?;
            waiters.remove(at)
        });
        removed.is_some()
    }

    fn take(
        &mut self,
        agent: &AgentName,
        queue: usize,
        take: impl FnOnce(&mut VecDeque<Waiter<S>>) -> Option<Waiter<S>>,
    ) -> Option<Waiter<S>> {
        let queues = self.by_agent.get_mut(agent)?;
        let waiters = queues.get_mut(&queue)?;
        let waiter = take(waiters)?;
        if waiters.is_empty() {
            queues.remove(&queue);
        }
        if queues.is_empty() {
            self.by_agent.remove(agent);
            self.turns.retain(|known| known != agent);
        }
        Some(waiter)
    }
}
