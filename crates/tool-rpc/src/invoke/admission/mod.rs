//! Admission control: the order in which waiting calls run.
//!
//! A concurrency group is a set of tools that share bounds and a waiting line, such as the tools of a
//! `[handler.queues.*]` section; a tool in no such section is a group of its own. In this module, a queue
//! is the waiting line of a concurrency group, not a queue of the broker.
//!
//! Two mechanisms isolate calls from each other. Each group has bounds of its own. And each group, or for
//! MCP servers all groups of a server, has a share of the calls that may run and wait in total, part of
//! which is reserved for it. Agents are served round-robin, so that the busiest one gets no more than its
//! part while others wait.

mod limits;
mod shares;
mod waiting;

use std::{collections::HashMap, num::NonZeroU16, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::{AgentName, ToolSource};
use rockbot_tools::{layers::policy::server_name, registry::RegisteredTool};
use tokio::{sync::oneshot, time::timeout};

pub use self::limits::{AdmissionLimits, QueueLimits, policy_queue_key, server_queue_key};
use self::{
    limits::SERVER_PREFIX,
    shares::Shares,
    waiting::{Waiter, WaitingCalls},
};

/// Reason why a call is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Too many calls wait in its queue.
    QueueFull,
    /// It waited for the longest time that its queue allows.
    TimedOut(Duration),
}

/// Identifies a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueId(usize);

/// Issues permits to run calls.
#[derive(Debug)]
pub(super) struct Admission {
    limits: AdmissionLimits,
    /// Shared queues by tool name, [`server_queue_key`] or [`policy_queue_key`].
    shared: HashMap<String, usize>,
    has_servers: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    running: Shares,
    waiting: Shares,
    /// Shared queues in their order, then the others in the order of their first calls.
    queues: Vec<Queue>,
    /// Queues of single tools by their names, and of policies by [`policy_queue_key`].
    by_name: HashMap<Arc<str>, usize>,
    shares: HashMap<Arc<str>, usize>,
    /// Weights of the shares; zero for one whose tools are not registered.
    weights: Vec<u16>,
    calls: WaitingCalls<oneshot::Sender<Permit>>,
}

#[derive(Debug)]
struct Queue {
    limits: QueueLimits,
    /// Weight that the policy of its tools had last.
    weight: Option<NonZeroU16>,
    share: usize,
    running: usize,
    waiting: usize,
}

/// Permit to run one call, returned when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    queue: usize,
}

impl Admission {
    pub(super) fn new(limits: AdmissionLimits) -> Arc<Self> {
        let mut shared = HashMap::new();
        let mut state = State {
            running: Shares::new(limits.running),
            waiting: Shares::new(limits.waiting),
            queues: Vec::new(),
            by_name: HashMap::new(),
            shares: HashMap::new(),
            weights: Vec::new(),
            calls: WaitingCalls::default(),
        };
        for (queue, (names, bounds)) in limits.queues.iter().enumerate() {
            let weight = names.iter().find_map(|name| limits.weights.get(name));
            let share = state.add_share(&shared_share(queue), weight.copied());
            let limits = *bounds;
            state.queues.push(Queue { limits, weight: None, share, running: 0, waiting: 0 });
            shared.extend(names.iter().map(|name| (name.clone(), queue)));
        }
        let has_servers = shared.keys().any(|name| name.starts_with(SERVER_PREFIX));
        Arc::new(Self { limits, shared, has_servers, state: Mutex::new(state) })
    }

    /// Divides the capacity among the registered tools and their servers.
    pub(super) fn set_tools(self: &Arc<Self>, tools: &[Arc<RegisteredTool>]) {
        let mut state = self.lock();
        state.weights.fill(0);
        for tool in tools {
            let key = self.share_key(tool);
            let weight = self.weight(tool, &key);
            let share = state.share(&key);
            state.weights[share] = weight.get();
        }
        state.divide();
        drop(state);
        self.grant_permits();
    }

    /// Returns the queue of a registered tool. It is kept for the life of the process.
    ///
    /// It is the one that lists the tool, or its server when only the server is listed, or else that of the
    /// tool's own policy.
    pub(super) fn queue_of(&self, tool: &RegisteredTool) -> QueueId {
        if let Some(queue) = self.shared_queue(tool) {
            return QueueId(queue);
        }
        let own = tool.tool().policy().and_then(|policy| policy.queue);
        let (key, limits) = match &own {
            Some(queue) => (policy_queue_key(queue.name()), QueueLimits::from(queue.rules())),
            None => (tool.registration().name.clone(), self.limits.per_tool),
        };
        let weight = own.as_ref().and_then(|queue| queue.rules().weight);
        let mut state = self.lock();
        if let Some(queue) = state.by_name.get(&*key).copied() {
            // A configuration that was read again may have other rules.
            let known = &mut state.queues[queue];
            known.limits = limits;
            if std::mem::replace(&mut known.weight, weight) != weight {
                let share = known.share;
                state.weights[share] = self.weight(tool, &self.share_key(tool)).get();
                state.divide();
            }
            return QueueId(queue);
        }
        let share_key = self.share_key(tool);
        let share = match state.shares.get(&*share_key) {
            Some(share) => *share,
            None => state.add_share(&share_key, Some(self.weight(tool, &share_key))),
        };
        state.queues.push(Queue { limits, weight, share, running: 0, waiting: 0 });
        let queue = state.queues.len() - 1;
        state.by_name.insert(key.into(), queue);
        QueueId(queue)
    }

    /// Returns a permit for a call if one is free.
    pub(super) fn try_admit(self: &Arc<Self>, QueueId(queue): QueueId) -> Option<Permit> {
        let mut state = self.lock();
        // Calls that wait now need capacity that is not free, so none of them is overtaken.
        state.may_run(queue).then(|| self.permit(&mut state, queue))
    }

    /// Waits for a permit for a call by `agent`. With `force`, the bounds on the number of waiting calls and
    /// on the time of the wait do not apply.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue.
    pub(super) async fn admit(
        self: &Arc<Self>,
        agent: &AgentName,
        QueueId(queue): QueueId,
        force: bool,
    ) -> Result<Permit, Rejection> {
        let (_position, started, wait) = {
            let mut state = self.lock();
            if !force && !state.may_wait(queue) {
                return Err(Rejection::QueueFull);
            }
            let (start, started) = oneshot::channel();
            let arrival = state.enqueue(agent, queue, start);
            let wait = state.queues[queue].limits.wait.filter(|_| !force);
            (QueuePosition { admission: self, agent, queue, arrival }, started, wait)
        };
        // A permit may have been returned since the caller's `try_admit`.
        self.grant_permits();
        match wait {
            Some(wait) => timeout(wait, started).await.map_err(|_| Rejection::TimedOut(wait))?,
            None => started.await,
        }
        // The sender is only dropped with the queue position.
        .map_err(|_| Rejection::QueueFull)
    }

    /// Returns the numbers of running and of waiting calls.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running.used(), state.waiting.used())
    }

    /// Returns the configured queue of a tool.
    fn shared_queue(&self, tool: &RegisteredTool) -> Option<usize> {
        if self.shared.is_empty() {
            return None;
        }
        let registration = tool.registration();
        if let Some(queue) = self.shared.get(&registration.name) {
            return Some(*queue);
        }
        if self.has_servers {
            let server = server_queue_key(&server_name(&registration.source));
            if let Some(queue) = self.shared.get(&server) {
                return Some(*queue);
            }
        }
        let policy = tool.tool().policy()?;
        self.shared.get(&policy_queue_key(policy.queue?.name())).copied()
    }

    /// Returns the name of a tool's share: of its queue, else of its MCP server, else its own.
    fn share_key(&self, tool: &RegisteredTool) -> String {
        if let Some(queue) = self.shared_queue(tool) {
            return shared_share(queue);
        }
        let queue = tool.tool().policy().and_then(|policy| policy.queue);
        let registration = tool.registration();
        match (queue, &registration.source) {
            (Some(queue), _) => policy_queue_key(queue.name()),
            (None, ToolSource::Mcp(server)) => server_queue_key(server),
            (None, _) => registration.name.clone(),
        }
    }

    /// Returns the weight of a tool's share.
    fn weight(&self, tool: &RegisteredTool, share: &str) -> NonZeroU16 {
        let weights = &self.limits.weights;
        let own = tool.tool().policy().and_then(|policy| policy.queue?.rules().weight);
        if weights.is_empty() {
            return own.unwrap_or(NonZeroU16::MIN);
        }
        let of_queue = self.shared_queue(tool).and_then(|queue| {
            self.limits.queues[queue].0.iter().find_map(|name| weights.get(name))
        });
        let source = || server_queue_key(&server_name(&tool.registration().source));
        let weight = of_queue.or_else(|| weights.get(share)).copied().or(own);
        let weight = weight.or_else(|| weights.get(&source()).copied());
        weight.unwrap_or(NonZeroU16::MIN)
    }

    fn permit(self: &Arc<Self>, state: &mut State, queue: usize) -> Permit {
        let Queue { share, running, .. } = &mut state.queues[queue];
        *running += 1;
        state.running.take(*share);
        Permit { admission: self.clone(), queue }
    }

    /// Grants permits to waiting calls while capacity is free.
    fn grant_permits(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(waiter) = state.next_waiter() else { return };
            let permit = self.permit(&mut state, waiter.queue);
            drop(state);
            // If the call was dropped meanwhile, so is the permit, which returns it.
            let _ = waiter.start.send(permit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns the name of the share of a configured queue. No tool has such a name.
fn shared_share(queue: usize) -> String {
    format!("shared:{queue}")
}

impl State {
    /// Adds a share of this weight, 1 when `None`, and divides the capacity again.
    fn add_share(&mut self, key: &str, weight: Option<NonZeroU16>) -> usize {
        let share = self.share(key);
        self.weights[share] = weight.map_or(1, NonZeroU16::get);
        self.divide();
        share
    }

    fn share(&mut self, key: &str) -> usize {
        if let Some(share) = self.shares.get(key) {
            return *share;
        }
        self.weights.push(0);
        let share = self.weights.len() - 1;
        self.shares.insert(key.into(), share);
        share
    }

    fn divide(&mut self) {
        self.running.set_weights(&self.weights);
        self.waiting.set_weights(&self.weights);
    }

    fn may_run(&self, queue: usize) -> bool {
        let Queue { limits, share, running, .. } = &self.queues[queue];
        *running < limits.running && self.running.has_capacity(*share)
    }

    fn may_wait(&self, queue: usize) -> bool {
        let Queue { limits, share, waiting, .. } = &self.queues[queue];
        *waiting < limits.waiting && self.waiting.has_capacity(*share)
    }

    fn enqueue(&mut self, agent: &AgentName, queue: usize, start: oneshot::Sender<Permit>) -> u64 {
        let Queue { share, waiting, .. } = &mut self.queues[queue];
        *waiting += 1;
        self.waiting.take(*share);
        self.calls.add(agent, queue, start)
    }

    fn next_waiter(&mut self) -> Option<Waiter<oneshot::Sender<Permit>>> {
        let mut calls = std::mem::take(&mut self.calls);
        let next = calls.next(|queue| self.may_run(queue));
        self.calls = calls;
        if let Some(waiter) = &next {
            self.leave(waiter.queue);
        }
        next
    }

    fn leave(&mut self, queue: usize) {
        let Queue { share, waiting, .. } = &mut self.queues[queue];
        *waiting -= 1;
        self.waiting.give_back(*share);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        let Queue { share, running, .. } = &mut state.queues[self.queue];
        *running -= 1;
        let share = *share;
        state.running.give_back(share);
        drop(state);
        self.admission.grant_permits();
    }
}

/// Position of a waiting call, left when dropped.
struct QueuePosition<'a> {
    admission: &'a Arc<Admission>,
    agent: &'a AgentName,
    queue: usize,
    arrival: u64,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        // An admitted call is no longer in the queue.
        if state.calls.remove(self.agent, self.queue, self.arrival) {
            state.leave(self.queue);
        }
    }
}

#[cfg(test)]
mod tests;
