//! Admission control: the order in which waiting calls run.
//!
//! A concurrency group is a set of tools that share bounds and a waiting line, such as the tools of a
//! `[handler.queues.*]` section; a tool in no such section is a group of its own. In this module, a queue
//! is the waiting line of a concurrency group, not a queue of the broker.
//!
//! Three bounds isolate calls from each other: how many run at once in total, how many of one group run at
//! once, and how many of one group wait. Agents are served round-robin, so that the busiest one gets no
//! more than its share while others wait.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use rockbot_contracts::AgentName;
use rockbot_tools::{layers::policy::server_name, registry::RegisteredTool};
use tokio::{sync::oneshot, time::timeout};

/// Bounds of a concurrency group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of calls that run at once; at least 1.
    pub running: usize,
    /// Maximum number of calls that wait; further calls fail with `overloaded`.
    pub waiting: usize,
    /// Maximum time that a call waits before it fails with `overloaded`. `None`: until its deadline.
    pub wait: Option<Duration>,
}

/// Bounds of a handler.
#[derive(Debug, Clone)]
pub struct AdmissionLimits {
    /// Maximum number of calls that run at once in total; at least 1.
    pub running: usize,
    /// Concurrency groups with their tools. [`server_queue_key`] stands for all tools of a server that are
    /// not in another group, and [`policy_queue_key`] for those whose own policy names the queue. A tool in
    /// none of them is a group of its own.
    pub queues: Vec<(Vec<String>, QueueLimits)>,
    /// Bounds of a tool that is a group of its own.
    pub per_tool: QueueLimits,
}

impl AdmissionLimits {
    /// Returns limits of `running` calls at once, of which one tool gets three quarters, so that a hung
    /// tool leaves capacity for the others.
    #[must_use]
    pub fn new(running: usize) -> Self {
        let running = running.max(1);
        let per_tool =
            QueueLimits { running: (running * 3).div_ceil(4), waiting: usize::MAX, wait: None };
        Self { running, queues: Vec::new(), per_tool }
    }
}

/// Start of the entries of [`server_queue_key`].
const SERVER_PREFIX: &str = "server:";

/// Start of the entries of [`policy_queue_key`].
const POLICY_PREFIX: &str = "queue:";

/// Returns the entry for all tools of a server or source in a concurrency group. No tool has such a name.
#[must_use]
pub fn server_queue_key(name: &str) -> String {
    format!("{SERVER_PREFIX}{}", name.to_lowercase())
}

/// Returns the entry for all tools in a concurrency group whose own policy names the queue `name`. No tool has
/// such a name.
#[must_use]
pub fn policy_queue_key(name: &str) -> String {
    format!("{POLICY_PREFIX}{name}")
}

/// Reason why a call is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Too many calls wait in its queue.
    QueueFull,
    /// It waited for the longest time that its queue allows.
    TimedOut(Duration),
}

/// Issues permits to run calls.
#[derive(Debug)]
pub(super) struct Admission {
    limits: AdmissionLimits,
    /// Shared queues by tool name, [`server_queue_key`] or [`policy_queue_key`].
    shared: HashMap<String, usize>,
    has_servers: bool,
    has_policy_queues: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Shared queues in their order, then queues of single tools in the order of their first calls.
    queues: Vec<Queue>,
    single: HashMap<Arc<str>, usize>,
    /// Agents with waiting calls, in round-robin order.
    turns: VecDeque<AgentName>,
    waiting: HashMap<AgentName, BTreeMap<usize, VecDeque<Waiter>>>,
    arrivals: u64,
}

#[derive(Debug)]
struct Queue {
    limits: QueueLimits,
    running: usize,
    waiting: usize,
}

#[derive(Debug)]
struct Waiter {
    queue: usize,
    arrival: u64,
    start: oneshot::Sender<Permit>,
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
        let mut state = State::default();
        for (queue, (tools, limits)) in limits.queues.iter().enumerate() {
            state.queues.push(Queue { limits: *limits, running: 0, waiting: 0 });
            shared.extend(tools.iter().map(|tool| (tool.clone(), queue)));
        }
        let has_servers = shared.keys().any(|name| name.starts_with(SERVER_PREFIX));
        let has_policy_queues = shared.keys().any(|name| name.starts_with(POLICY_PREFIX));
        let state = Mutex::new(state);
        Arc::new(Self { limits, shared, has_servers, has_policy_queues, state })
    }

    /// Returns the name by which a tool's queue is found: the tool's own, its server's when only the server
    /// is in a shared queue, or else that of the queue in the tool's own policy.
    pub(super) fn queue_name<'a>(&self, tool: &'a RegisteredTool) -> Cow<'a, str> {
        let registration = tool.registration();
        if self.shared.contains_key(&registration.name) {
            return Cow::Borrowed(&registration.name);
        }
        if self.has_servers {
            let server = server_queue_key(&server_name(&registration.source));
            if self.shared.contains_key(&server) {
                return Cow::Owned(server);
            }
        }
        if self.has_policy_queues
            && let Some(queue) = tool.tool().policy().and_then(|policy| policy.queue)
        {
            let queue = policy_queue_key(queue.name());
            if self.shared.contains_key(&queue) {
                return Cow::Owned(queue);
            }
        }
        Cow::Borrowed(&registration.name)
    }

    /// Returns a permit for a call of `tool` if one is free. The tool must be registered, because its
    /// queue is kept for the life of the process.
    pub(super) fn try_admit(self: &Arc<Self>, tool: &str) -> Option<Permit> {
        let mut state = self.lock();
        let queue = self.queue_index(&mut state, tool);
        // Calls that wait now need capacity that is not free, so none of them is overtaken.
        let is_free = state.running < self.limits.running && state.queues[queue].has_capacity();
        is_free.then(|| self.permit(&mut state, queue))
    }

    /// Waits for a permit for a call of `tool` by `agent`. With `force`, the bounds on the number of
    /// waiting calls and on the time of the wait do not apply.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue.
    pub(super) async fn admit(
        self: &Arc<Self>,
        agent: &AgentName,
        tool: &str,
        force: bool,
    ) -> Result<Permit, Rejection> {
        let (_position, started, wait) = {
            let mut state = self.lock();
            let queue = self.queue_index(&mut state, tool);
            if !force && state.queues[queue].waiting >= state.queues[queue].limits.waiting {
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
        (state.running, state.queues.iter().map(|queue| queue.waiting).sum())
    }

    fn queue_index(&self, state: &mut State, tool: &str) -> usize {
        if let Some(queue) = self.shared.get(tool).or_else(|| state.single.get(tool)) {
            return *queue;
        }
        state.queues.push(Queue { limits: self.limits.per_tool, running: 0, waiting: 0 });
        let queue = state.queues.len() - 1;
        state.single.insert(tool.into(), queue);
        queue
    }

    fn permit(self: &Arc<Self>, state: &mut State, queue: usize) -> Permit {
        state.running += 1;
        state.queues[queue].running += 1;
        Permit { admission: self.clone(), queue }
    }

    /// Grants permits to waiting calls while capacity is free.
    fn grant_permits(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.running >= self.limits.running {
                return;
            }
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

impl Queue {
    fn has_capacity(&self) -> bool {
        self.running < self.limits.running
    }
}

impl State {
    fn enqueue(&mut self, agent: &AgentName, queue: usize, start: oneshot::Sender<Permit>) -> u64 {
        self.arrivals += 1;
        let arrival = self.arrivals;
        if !self.waiting.contains_key(agent) {
            self.turns.push_back(agent.clone());
        }
        let queues = self.waiting.entry(agent.clone()).or_default();
        queues.entry(queue).or_default().push_back(Waiter { queue, arrival, start });
        self.queues[queue].waiting += 1;
        arrival
    }

    /// Removes and returns the oldest runnable call of the first agent that has one, and moves that
    /// agent to the end of the round-robin order.
    fn next_waiter(&mut self) -> Option<Waiter> {
        for turn in 0..self.turns.len() {
            let agent_queues = &self.waiting[&self.turns[turn]];
            let oldest = agent_queues
                .iter()
                .filter(|(queue, _)| self.queues[**queue].has_capacity())
                .filter_map(|(queue, waiters)| Some((waiters.front()?.arrival, *queue)))
                .min();
            let Some((_, queue)) = oldest else { continue };
            let agent = self.turns.remove(turn)?;
            self.turns.push_back(agent.clone());
            return self.remove(&agent, queue, VecDeque::pop_front);
        }
        None
    }

    fn remove(
        &mut self,
        agent: &AgentName,
        queue: usize,
        take: impl FnOnce(&mut VecDeque<Waiter>) -> Option<Waiter>,
    ) -> Option<Waiter> {
        let agent_queues = self.waiting.get_mut(agent)?;
        let waiters = agent_queues.get_mut(&queue)?;
        let waiter = take(waiters)?;
        self.queues[queue].waiting -= 1;
        if waiters.is_empty() {
            agent_queues.remove(&queue);
        }
        if agent_queues.is_empty() {
            self.waiting.remove(agent);
            self.turns.retain(|known| known != agent);
        }
        Some(waiter)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.running -= 1;
        state.queues[self.queue].running -= 1;
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
        // An admitted call is no longer in the queue.
        self.admission.lock().remove(self.agent, self.queue, |waiters| {
            let at = waiters.binary_search_by_key(&self.arrival, |waiter| waiter.arrival).ok()?;
            waiters.remove(at)
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::BoxFuture};
    use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
    use rockbot_tools::{
        CallPolicy, Tool, ToolContext, ToolFailure, ToolRegistry, ToolResult,
        limits::queue::{Queue as PolicyQueue, QueueRules},
    };
    use serde_json::{Value, json};

    use super::*;

    /// A tool with a policy of its own.
    struct OwnPolicy(ToolRegistration, CallPolicy);

    impl Tool for OwnPolicy {
        fn registration(&self) -> &ToolRegistration {
            &self.0
        }

        fn call<'a>(
            &'a self,
            _: Value,
            _: &'a ToolContext,
        ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
            Box::pin(std::future::ready(Ok(ToolResult::text(""))))
        }

        fn policy(&self) -> Option<CallPolicy> {
            Some(self.1.clone())
        }
    }

    /// Returns the tool `name`, whose own policy has the queue `queue`.
    fn registered(name: &str, source: ToolSource, queue: Option<&str>) -> Arc<RegisteredTool> {
        let registration = ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "a test tool".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source,
            hints: ToolHints::default(),
            timeout_ms: None,
        };
        let queue = queue.map(|name| PolicyQueue::new(name, QueueRules::default()));
        let policy = CallPolicy { queue, ..CallPolicy::default() };
        let registry = ToolRegistry::new();
        registry.register(Arc::new(OwnPolicy(registration, policy))).expect("registered");
        registry.get(name).expect("a tool")
    }

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).expect("a valid name")
    }

    fn admission(running: usize, per_tool: usize, waiting: usize) -> Arc<Admission> {
        let per_tool = QueueLimits { running: per_tool, waiting, wait: None };
        Admission::new(AdmissionLimits { running, queues: Vec::new(), per_tool })
    }

    #[tokio::test]
    async fn hung_tool_leaves_permits_for_others() {
        let admission = admission(4, 3, 100);
        let one = agent("one");
        let hung: Vec<_> = (0..3).map(|_| admission.try_admit("hang").expect("a permit")).collect();
        assert!(
            admission.admit(&one, "hang", false).now_or_never().is_none(),
            "the fourth call waits"
        );
        for _ in 0..100 {
            admission.try_admit("echo").expect("a permit");
        }
        drop(hung);
        admission.try_admit("hang").expect("a permit");
    }

    #[tokio::test]
    async fn agents_are_served_round_robin() {
        let admission = admission(1, 1, 1000);
        let (loud, quiet) = (agent("loud"), agent("quiet"));
        let running = admission.admit(&loud, "echo", false).await.expect("a permit");
        let (started, mut order) = tokio::sync::mpsc::channel(102);
        let mut calls = tokio::task::JoinSet::new();
        for (agent, count) in [(&loud, 100), (&quiet, 2)] {
            for _ in 0..count {
                let (admission, agent, started) =
                    (admission.clone(), agent.clone(), started.clone());
                calls.spawn(async move {
                    let _permit = admission.admit(&agent, "echo", false).await.expect("a permit");
                    started.try_send(agent.to_string()).expect("channel capacity");
                });
                tokio::task::yield_now().await;
            }
        }
        drop(running);
        let mut first = Vec::new();
        for _ in 0..4 {
            first.push(order.recv().await.expect("a call ran"));
        }
        assert_eq!(first, ["loud", "quiet", "loud", "quiet"]);
        while calls.join_next().await.is_some() {}
    }

    #[tokio::test]
    async fn full_queue_rejects_calls() {
        let admission = admission(1, 1, 1);
        let agent = agent("one");
        let _running = admission.admit(&agent, "echo", false).await.expect("a permit");
        let mut waiting = Box::pin(admission.admit(&agent, "echo", false));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(admission.admit(&agent, "echo", false).await.err(), Some(Rejection::QueueFull));
        drop(waiting);
        assert!(
            admission.admit(&agent, "echo", false).now_or_never().is_none(),
            "the position is free"
        );
    }

    #[tokio::test]
    async fn tools_of_a_shared_queue_share_its_bounds() {
        let slow = QueueLimits { running: 1, waiting: 0, wait: None };
        let tools = vec!["bash".to_owned(), "python".to_owned()];
        let limits = AdmissionLimits { queues: vec![(tools, slow)], ..AdmissionLimits::new(8) };
        let admission = Admission::new(limits);
        let agent = agent("one");
        let _running = admission.try_admit("bash").expect("a permit");
        assert_eq!(
            admission.admit(&agent, "python", false).await.err(),
            Some(Rejection::QueueFull)
        );
        admission.try_admit("echo").expect("a permit of its own queue");
    }

    #[tokio::test(start_paused = true)]
    async fn forced_call_waits_beyond_the_queue_timeout() {
        let wait = Duration::from_secs(5);
        let per_tool = QueueLimits { running: 1, waiting: 10, wait: Some(wait) };
        let admission =
            Admission::new(AdmissionLimits { running: 1, queues: Vec::new(), per_tool });
        let agent = agent("one");
        let running = admission.try_admit("echo").expect("a permit");
        let timed_out = admission.admit(&agent, "echo", false).await.err();
        assert_eq!(timed_out, Some(Rejection::TimedOut(wait)));
        assert_eq!(admission.counts(), (1, 0), "the position is free");
        let mut forced = Box::pin(admission.admit(&agent, "echo", true));
        assert!(forced.as_mut().now_or_never().is_none());
        tokio::time::advance(wait * 2).await;
        assert!(forced.as_mut().now_or_never().is_none());
        drop(running);
        forced.now_or_never().expect("no further wait").expect("a permit");
    }

    #[test]
    fn tools_use_their_own_queue_before_their_servers() {
        let one = QueueLimits { running: 1, waiting: 0, wait: None };
        let queues =
            vec![(vec!["github__push".to_owned()], one), (vec![server_queue_key("GitHub")], one)];
        let admission = Admission::new(AdmissionLimits { queues, ..AdmissionLimits::new(8) });
        let queue_name = |name: &str, source: ToolSource| {
            admission.queue_name(&registered(name, source, None)).into_owned()
        };
        let github = || ToolSource::Mcp("github".to_owned());
        assert_eq!(queue_name("github__push", github()), "github__push");
        assert_eq!(queue_name("github__read", github()), queue_name("github__list", github()));
        assert_eq!(queue_name("read", ToolSource::Files), "read");
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_position_receives_no_permit() {
        let admission = admission(1, 1, 100);
        let agent = agent("one");
        let running = admission.admit(&agent, "echo", false).await.expect("a permit");
        let abandoned =
            tokio::time::timeout(Duration::from_millis(1), admission.admit(&agent, "echo", false));
        assert!(abandoned.await.is_err());
        let waiting = admission.admit(&agent, "echo", false);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(running);
        waiting.now_or_never().expect("no further wait").expect("a permit");
    }

    #[test]
    fn queue_of_own_policy_is_the_one_of_the_section() {
        let one = QueueLimits { running: 1, waiting: 0, wait: None };
        let slow = vec!["bash".to_owned(), policy_queue_key("slow")];
        let queues = vec![(slow, one), (vec!["listed".to_owned(), policy_queue_key("other")], one)];
        let admission = Admission::new(AdmissionLimits { queues, ..AdmissionLimits::new(8) });
        let source = || ToolSource::Other("rest".to_owned());
        let queue_of = |name: &str| {
            admission.queue_name(&registered(name, source(), Some("slow"))).into_owned()
        };
        let running = admission.try_admit("bash").expect("a permit");
        assert!(admission.try_admit(&queue_of("get")).is_none(), "both share one permit");
        assert!(admission.try_admit(&queue_of("listed")).is_some(), "its section counts first");
        drop(running);
        admission.try_admit(&queue_of("get")).expect("a permit");
        let unknown = registered("unknown", source(), Some("nowhere"));
        assert_eq!(admission.queue_name(&unknown), "unknown");
    }
}
