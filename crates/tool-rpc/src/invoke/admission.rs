//! Which of the calls that wait may run next.
//!
//! Three bounds keep calls out of each other's way: how many run at once in all, how many of one
//! queue of tools run at once, and how many of it wait. Agents take turns, so the one that sends
//! most gets no more than its share while others wait.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rockbot_contracts::{AgentName, ToolRegistration};
use rockbot_tools::layers::policy::server_name;
use tokio::{sync::oneshot, time::timeout};

/// Bounds of a queue of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Calls that run at once; at least 1.
    pub running: usize,
    /// Calls that wait at most; a call on top is refused as overloaded.
    pub waiting: usize,
    /// How long a call waits before it is refused as overloaded; until its deadline when absent.
    pub wait: Option<Duration>,
}

/// Bounds of a handler.
#[derive(Debug, Clone)]
pub struct AdmissionLimits {
    /// Calls that run at once in all; at least 1.
    pub running: usize,
    /// Queues, with the tools in them, and the servers whose other tools are in them, as
    /// [`queue_of_server`] writes them. A tool in none has a queue to itself.
    pub queues: Vec<(Vec<String>, QueueLimits)>,
    /// Bounds of a queue that a tool has to itself.
    pub per_tool: QueueLimits,
}

impl AdmissionLimits {
    /// `running` calls at once; a tool by itself gets three quarters of them, so that one that
    /// hangs leaves room for the others.
    #[must_use]
    pub fn new(running: usize) -> Self {
        let running = running.max(1);
        let per_tool =
            QueueLimits { running: (running * 3).div_ceil(4), waiting: usize::MAX, wait: None };
        Self { running, queues: Vec::new(), per_tool }
    }
}

/// How a server or a source stands among the tools of a queue: no tool has such a name.
#[must_use]
pub fn queue_of_server(name: &str) -> String {
    format!("server:{}", name.to_lowercase())
}

/// Why a call is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Too many wait in its queue.
    Full,
    /// It waited for so long.
    For(Duration),
}

/// Hands out the right to run.
#[derive(Debug)]
pub(super) struct Admission {
    limits: AdmissionLimits,
    named: HashMap<String, usize>,
    /// Whether servers are among the named.
    has_servers: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// The named queues in their order, then those of single tools as they are first called.
    queues: Vec<Queue>,
    single: HashMap<Arc<str>, usize>,
    /// Agents with calls that wait; whose turn is next comes first.
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

/// The right to run one call, given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    queue: usize,
}

impl Admission {
    pub(super) fn new(limits: AdmissionLimits) -> Arc<Self> {
        let mut named = HashMap::new();
        let mut state = State::default();
        for (queue, (tools, limits)) in limits.queues.iter().enumerate() {
            state.queues.push(Queue { limits: *limits, running: 0, waiting: 0 });
            named.extend(tools.iter().map(|tool| (tool.clone(), queue)));
        }
        let has_servers = named.keys().any(|name| name.starts_with("server:"));
        Arc::new(Self { limits, named, has_servers, state: Mutex::new(state) })
    }

    /// Under which name a tool waits: its own, or its server's where that is in a queue.
    pub(super) fn waits_as<'a>(&self, tool: &'a ToolRegistration) -> Cow<'a, str> {
        if !self.named.contains_key(&tool.name) && self.has_servers {
            let server = queue_of_server(&server_name(&tool.source));
            if self.named.contains_key(&server) {
                return Cow::Owned(server);
            }
        }
        Cow::Borrowed(&tool.name)
    }

    /// Lets a call of `tool` run if there is room now. The tool must be a registered one: its
    /// queue is kept for good.
    pub(super) fn try_admit(self: &Arc<Self>, tool: &str) -> Option<Permit> {
        let mut state = self.lock();
        let queue = self.queue_of(&mut state, tool);
        // Whoever waits now waits for room that is not there, so nobody is overtaken.
        let room = state.running < self.limits.running && state.queues[queue].has_room();
        room.then(|| self.permit(&mut state, queue))
    }

    /// Waits until a call of `tool` for `agent` may run; `anyway` even when too many wait already,
    /// and for however long.
    ///
    /// # Cancellation
    /// Dropping the future gives the place up.
    pub(super) async fn admit(
        self: &Arc<Self>,
        agent: &AgentName,
        tool: &str,
        anyway: bool,
    ) -> Result<Permit, NoRoom> {
        let (_place, started, wait) = {
            let mut state = self.lock();
            let queue = self.queue_of(&mut state, tool);
            if !anyway && state.queues[queue].waiting >= state.queues[queue].limits.waiting {
                return Err(NoRoom::Full);
            }
            let (start, started) = oneshot::channel();
            let arrival = state.wait(agent, queue, start);
            let wait = state.queues[queue].limits.wait.filter(|_| !anyway);
            (Place { admission: self, agent, queue, arrival }, started, wait)
        };
        // Room may have come up since the caller looked.
        self.fill();
        match wait {
            Some(wait) => timeout(wait, started).await.map_err(|_| NoRoom::For(wait))?,
            None => started.await,
        }
        // Nobody drops the other end of one who waits.
        .map_err(|_| NoRoom::Full)
    }

    /// How many calls run, and how many wait for room.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.queues.iter().map(|queue| queue.waiting).sum())
    }

    fn queue_of(&self, state: &mut State, tool: &str) -> usize {
        if let Some(queue) = self.named.get(tool).or_else(|| state.single.get(tool)) {
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

    /// Lets calls run for as long as there is room.
    fn fill(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.running >= self.limits.running {
                return;
            }
            let Some(waiter) = state.next() else { return };
            let permit = self.permit(&mut state, waiter.queue);
            drop(state);
            // Whoever went away meanwhile gives it back by dropping it.
            let _ = waiter.start.send(permit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.running < self.limits.running
    }
}

impl State {
    fn wait(&mut self, agent: &AgentName, queue: usize, start: oneshot::Sender<Permit>) -> u64 {
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

    /// The oldest call that may run of the first agent that has one; that agent goes to the end.
    fn next(&mut self) -> Option<Waiter> {
        for turn in 0..self.turns.len() {
            let of_agent = &self.waiting[&self.turns[turn]];
            let oldest = of_agent
                .iter()
                .filter(|(queue, _)| self.queues[**queue].has_room())
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
        let of_agent = self.waiting.get_mut(agent)?;
        let waiters = of_agent.get_mut(&queue)?;
        let waiter = take(waiters)?;
        self.queues[queue].waiting -= 1;
        if waiters.is_empty() {
            of_agent.remove(&queue);
        }
        if of_agent.is_empty() {
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
        self.admission.fill();
    }
}

/// A place among the waiting, given up when dropped.
struct Place<'a> {
    admission: &'a Arc<Admission>,
    agent: &'a AgentName,
    queue: usize,
    arrival: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Not there when it was let in.
        self.admission.lock().remove(self.agent, self.queue, |waiters| {
            let at = waiters.binary_search_by_key(&self.arrival, |waiter| waiter.arrival).ok()?;
            waiters.remove(at)
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rockbot_contracts::{ToolHints, ToolRegistration, ToolSource};
    use serde_json::json;

    use super::*;

    fn registration(name: &str) -> ToolRegistration {
        ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "a tool of a test".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Internal,
            hints: ToolHints::default(),
            timeout_ms: None,
        }
    }

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).expect("a name")
    }

    fn admission(running: usize, per_tool: usize, waiting: usize) -> Arc<Admission> {
        let per_tool = QueueLimits { running: per_tool, waiting, wait: None };
        Admission::new(AdmissionLimits { running, queues: Vec::new(), per_tool })
    }

    #[tokio::test]
    async fn a_tool_that_hangs_leaves_room_for_the_others() {
        let admission = admission(4, 3, 100);
        let one = agent("one");
        let hanging: Vec<_> = (0..3).map(|_| admission.try_admit("hang").expect("room")).collect();
        assert!(admission.admit(&one, "hang", false).now_or_never().is_none(), "a fourth waits");
        for _ in 0..100 {
            admission.try_admit("echo").expect("room");
        }
        drop(hanging);
        admission.try_admit("hang").expect("room");
    }

    #[tokio::test]
    async fn agents_take_turns() {
        let admission = admission(1, 1, 1000);
        let (loud, quiet) = (agent("loud"), agent("quiet"));
        let running = admission.admit(&loud, "echo", false).await.expect("room");
        let (told, mut order) = tokio::sync::mpsc::channel(102);
        let mut calls = tokio::task::JoinSet::new();
        for (agent, count) in [(&loud, 100), (&quiet, 2)] {
            for _ in 0..count {
                let (admission, agent, told) = (admission.clone(), agent.clone(), told.clone());
                calls.spawn(async move {
                    let _permit = admission.admit(&agent, "echo", false).await.expect("room");
                    told.try_send(agent.to_string()).expect("heard");
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
    async fn a_full_queue_refuses() {
        let admission = admission(1, 1, 1);
        let agent = agent("one");
        let _running = admission.admit(&agent, "echo", false).await.expect("room");
        let mut waiting = Box::pin(admission.admit(&agent, "echo", false));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(admission.admit(&agent, "echo", false).await.err(), Some(NoRoom::Full));
        drop(waiting);
        assert!(
            admission.admit(&agent, "echo", false).now_or_never().is_none(),
            "its place is free"
        );
    }

    #[tokio::test]
    async fn tools_of_a_named_queue_share_its_bounds() {
        let slow = QueueLimits { running: 1, waiting: 0, wait: None };
        let tools = vec!["bash".to_owned(), "python".to_owned()];
        let limits = AdmissionLimits { queues: vec![(tools, slow)], ..AdmissionLimits::new(8) };
        let admission = Admission::new(limits);
        let agent = agent("one");
        let _running = admission.try_admit("bash").expect("room");
        assert_eq!(admission.admit(&agent, "python", false).await.err(), Some(NoRoom::Full));
        admission.try_admit("echo").expect("a queue of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_as_long_as_its_queue_allows_and_one_that_came_before_for_longer() {
        let wait = Duration::from_secs(5);
        let per_tool = QueueLimits { running: 1, waiting: 10, wait: Some(wait) };
        let admission =
            Admission::new(AdmissionLimits { running: 1, queues: Vec::new(), per_tool });
        let agent = agent("one");
        let running = admission.try_admit("echo").expect("room");
        let late = admission.admit(&agent, "echo", false).await.err();
        assert_eq!(late, Some(NoRoom::For(wait)));
        assert_eq!(admission.counts(), (1, 0), "its place is free");
        let mut again = Box::pin(admission.admit(&agent, "echo", true));
        assert!(again.as_mut().now_or_never().is_none());
        tokio::time::advance(wait * 2).await;
        assert!(again.as_mut().now_or_never().is_none());
        drop(running);
        again.now_or_never().expect("at once").expect("room");
    }

    #[test]
    fn the_tools_of_a_server_wait_in_its_queue_unless_they_have_their_own() {
        let one = QueueLimits { running: 1, waiting: 0, wait: None };
        let queues =
            vec![(vec!["github__push".to_owned()], one), (vec![queue_of_server("GitHub")], one)];
        let admission = Admission::new(AdmissionLimits { queues, ..AdmissionLimits::new(8) });
        let of = |name: &str, source: ToolSource| {
            let tool = ToolRegistration { source, ..registration(name) };
            admission.waits_as(&tool).into_owned()
        };
        let github = || ToolSource::Mcp("github".to_owned());
        assert_eq!(of("github__push", github()), "github__push");
        assert_eq!(of("github__read", github()), of("github__list", github()));
        assert_eq!(of("read", ToolSource::Files), "read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_given_up_is_not_handed_out() {
        let admission = admission(1, 1, 100);
        let agent = agent("one");
        let running = admission.admit(&agent, "echo", false).await.expect("room");
        let given_up =
            tokio::time::timeout(Duration::from_millis(1), admission.admit(&agent, "echo", false));
        assert!(given_up.await.is_err());
        let waiting = admission.admit(&agent, "echo", false);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(running);
        waiting.now_or_never().expect("at once").expect("room");
    }
}
