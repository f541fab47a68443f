//! Tests of the bounds and of the order.

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
    Admission::new(AdmissionLimits { per_tool, ..AdmissionLimits::new(running) })
}

/// Takes all permits that a queue gets.
fn permits(admission: &Arc<Admission>, queue: QueueId) -> Vec<Permit> {
    std::iter::from_fn(|| admission.try_admit(queue)).collect()
}

/// Returns the queue of the tool `name`, which is in no configured one by its server or its own policy.
fn id(admission: &Admission, name: &str) -> QueueId {
    admission.queue_of(&registered(name, ToolSource::Internal, None))
}

#[tokio::test]
async fn hung_tool_leaves_permits_for_others() {
    let admission = admission(4, 3, 100);
    let one = agent("one");
    let hung: Vec<_> =
        (0..3).map(|_| admission.try_admit(id(&admission, "hang")).expect("a permit")).collect();
    assert!(
        admission.admit(&one, id(&admission, "hang"), false).now_or_never().is_none(),
        "the fourth call waits"
    );
    for _ in 0..100 {
        admission.try_admit(id(&admission, "echo")).expect("a permit");
    }
    drop(hung);
    admission.try_admit(id(&admission, "hang")).expect("a permit");
}

#[tokio::test]
async fn agents_are_served_round_robin() {
    let admission = admission(1, 1, 1000);
    let (loud, quiet) = (agent("loud"), agent("quiet"));
    let running = admission.admit(&loud, id(&admission, "echo"), false).await.expect("a permit");
    let (started, mut order) = tokio::sync::mpsc::channel(102);
    let mut calls = tokio::task::JoinSet::new();
    for (agent, count) in [(&loud, 100), (&quiet, 2)] {
        for _ in 0..count {
            let (admission, agent, started) = (admission.clone(), agent.clone(), started.clone());
            calls.spawn(async move {
                let _permit =
                    admission.admit(&agent, id(&admission, "echo"), false).await.expect("a permit");
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
    let _running = admission.admit(&agent, id(&admission, "echo"), false).await.expect("a permit");
    let mut waiting = Box::pin(admission.admit(&agent, id(&admission, "echo"), false));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(
        admission.admit(&agent, id(&admission, "echo"), false).await.err(),
        Some(Rejection::QueueFull)
    );
    drop(waiting);
    assert!(
        admission.admit(&agent, id(&admission, "echo"), false).now_or_never().is_none(),
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
    let _running = admission.try_admit(id(&admission, "bash")).expect("a permit");
    assert_eq!(
        admission.admit(&agent, id(&admission, "python"), false).await.err(),
        Some(Rejection::QueueFull)
    );
    admission.try_admit(id(&admission, "echo")).expect("a permit of its own queue");
}

#[tokio::test(start_paused = true)]
async fn forced_call_waits_beyond_the_queue_timeout() {
    let wait = Duration::from_secs(5);
    let per_tool = QueueLimits { running: 1, waiting: 10, wait: Some(wait) };
    let admission = Admission::new(AdmissionLimits { per_tool, ..AdmissionLimits::new(1) });
    let agent = agent("one");
    let running = admission.try_admit(id(&admission, "echo")).expect("a permit");
    let timed_out = admission.admit(&agent, id(&admission, "echo"), false).await.err();
    assert_eq!(timed_out, Some(Rejection::TimedOut(wait)));
    assert_eq!(admission.counts(), (1, 0), "the position is free");
    let mut forced = Box::pin(admission.admit(&agent, id(&admission, "echo"), true));
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
    let queue =
        |name: &str, source: ToolSource| admission.queue_of(&registered(name, source, None));
    let github = || ToolSource::Mcp("github".to_owned());
    assert_eq!(queue("github__push", github()), QueueId(0));
    assert_eq!(queue("github__read", github()), QueueId(1));
    assert_eq!(queue("github__list", github()), QueueId(1));
    assert_eq!(queue("read", ToolSource::Files), QueueId(2));
}

#[tokio::test(start_paused = true)]
async fn abandoned_position_receives_no_permit() {
    let admission = admission(1, 1, 100);
    let agent = agent("one");
    let running = admission.admit(&agent, id(&admission, "echo"), false).await.expect("a permit");
    let abandoned = tokio::time::timeout(
        Duration::from_millis(1),
        admission.admit(&agent, id(&admission, "echo"), false),
    );
    assert!(abandoned.await.is_err());
    let waiting = admission.admit(&agent, id(&admission, "echo"), false);
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
    let queue_of = |name: &str| admission.queue_of(&registered(name, source(), Some("slow")));
    let running = admission.try_admit(id(&admission, "bash")).expect("a permit");
    assert!(admission.try_admit(queue_of("get")).is_none(), "both share one permit");
    assert!(admission.try_admit(queue_of("listed")).is_some(), "its section counts first");
    drop(running);
    admission.try_admit(queue_of("get")).expect("a permit");
}

#[test]
fn queue_of_own_policy_needs_no_section() {
    let admission = Admission::new(AdmissionLimits::new(8));
    let limited = |name: &str, running| {
        let tool = registered(name, ToolSource::Mcp(name.to_owned()), None);
        let rules = QueueRules { running, ..QueueRules::default() };
        let policy =
            CallPolicy { queue: Some(PolicyQueue::new("github", rules)), ..CallPolicy::default() };
        let registry = ToolRegistry::new();
        let own = OwnPolicy(tool.registration().clone(), policy);
        registry.register(Arc::new(own)).expect("registered");
        admission.queue_of(&registry.get(name).expect("a tool"))
    };
    let _running = admission.try_admit(limited("one", 1)).expect("a permit");
    assert!(admission.try_admit(limited("two", 1)).is_none(), "both servers share one permit");
    admission.try_admit(limited("two", 2)).expect("the file was read again, with another rule");
}

#[test]
fn queue_of_own_policy_has_its_own_weight() {
    let admission = Admission::new(AdmissionLimits::new(16));
    let weighted = |weight| {
        let tool = registered("search", ToolSource::Mcp("github".to_owned()), None);
        let rules =
            QueueRules { running: 16, weight: NonZeroU16::new(weight), ..QueueRules::default() };
        let policy =
            CallPolicy { queue: Some(PolicyQueue::new("github", rules)), ..CallPolicy::default() };
        let registry = ToolRegistry::new();
        registry
            .register(Arc::new(OwnPolicy(tool.registration().clone(), policy)))
            .expect("registered");
        registry.get("search").expect("a tool")
    };
    let read = registered("read", ToolSource::Files, None);
    let free_beside = |tool: &Arc<RegisteredTool>| {
        let _hung = permits(&admission, admission.queue_of(tool));
        permits(&admission, admission.queue_of(&read)).len()
    };
    admission.set_tools(&[weighted(1), read.clone()]);
    let equal = free_beside(&weighted(1));
    let read_again = free_beside(&weighted(5));
    assert!(read_again < equal, "{read_again} < {equal}: the heavier queue reserves more");
    admission.set_tools(&[weighted(5), read.clone()]);
    assert_eq!(free_beside(&weighted(5)), read_again);
    assert_eq!(free_beside(&weighted(1)), equal);
}

#[tokio::test]
async fn hung_tools_leave_permits_and_positions_for_others() {
    for hung in [2, 5, 20] {
        let limits = AdmissionLimits { waiting: 128, ..AdmissionLimits::new(64) };
        let admission = Admission::new(limits);
        let names: Vec<_> = (0..hung).map(|number| format!("hang{number}")).collect();
        let tool = |name: &str| registered(name, ToolSource::Internal, None);
        let tools: Vec<_> = names.iter().map(|name| tool(name)).chain([tool("echo")]).collect();
        admission.set_tools(&tools);
        let one = agent("one");
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        for name in &names {
            let queue = id(&admission, name);
            running.extend(permits(&admission, queue));
            loop {
                let mut call = Box::pin(admission.admit(&one, queue, false));
                match call.as_mut().now_or_never() {
                    None => waiting.push(call),
                    Some(outcome) => {
                        assert_eq!(outcome.err(), Some(Rejection::QueueFull));
                        break;
                    }
                }
            }
        }
        let echo = id(&admission, "echo");
        let permit = admission.try_admit(echo).expect("a reserved permit");
        let others = permits(&admission, echo);
        let mut next = Box::pin(admission.admit(&one, echo, false));
        assert!(next.as_mut().now_or_never().is_none(), "a position is reserved, too");
        drop(permit);
        next.now_or_never().expect("no further wait").expect("a permit");
        drop((others, running));
    }
}

#[test]
fn tools_of_an_mcp_server_share_what_is_reserved_for_it() {
    let weights = HashMap::from([("read".to_owned(), NonZeroU16::MAX)]);
    let admission = Admission::new(AdmissionLimits { weights, ..AdmissionLimits::new(8) });
    let slow = |name: &str| registered(name, ToolSource::Mcp("Slow".to_owned()), None);
    let tools = [slow("slow__a"), slow("slow__b"), registered("read", ToolSource::Files, None)];
    admission.set_tools(&tools);
    let [a, b, read] = tools.each_ref().map(|tool| admission.queue_of(tool));
    let (a, b) = (permits(&admission, a), permits(&admission, b));
    assert_eq!((a.len(), b.len()), (5, 0), "one reserved permit and the common half");
    assert_eq!(permits(&admission, read).len(), 2, "the weight reserves one more");
}
