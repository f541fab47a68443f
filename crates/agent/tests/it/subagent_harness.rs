//! Agents with sub-agents, and models that answer as a function of the request.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use rockbot_agent::{
    Agent, AgentClient, AgentInbox, AgentLimits, AgentParts, Approvals, ConversationOptions,
    ConversationService, ConversationServiceBuilder, Conversations, Delegation, DelegationOptions,
    ExecutionStrategy, FollowUps, Sharing, internal_tools::InternalTools, serve, serve_shared,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{
    AgentName, AgentReply, ConversationRequest, ConversationResponse, InstanceId, ReplyBody,
    TaskId, TaskSummary, TurnUsage,
};
use rockbot_llm::{
    ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason,
};
use rockbot_memory::{WorkingMemory, working_memory::working_memory_tools};
use rockbot_store::{Clock, Key, Lease, Store, Stores};
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::{BudgetLimits, ToolFilter};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{AgentFixture, ProbeTool, message, text_events};

/// An answer, and the gate whose permit is awaited first.
pub(crate) type GatedEvents = (Vec<ChatEvent>, Option<Arc<Semaphore>>);

/// Answers a request.
type Script = Arc<dyn Fn(&ChatRequest) -> GatedEvents + Send + Sync>;

/// A model that answers as a function of the request, and counts the requests.
pub(crate) struct FunctionModel {
    script: Script,
    requests: Mutex<Vec<ChatRequest>>,
    running: AtomicUsize,
    pub(crate) most: AtomicUsize,
}

impl FunctionModel {
    pub(crate) fn new(
        script: impl Fn(&ChatRequest) -> GatedEvents + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { script: Arc::new(script), requests: Mutex::default(), running, most })
    }

    /// Returns a model that starts `parts` sub-agents for the message `go`. Each of them needs a permit of
    /// `gate` to answer.
    pub(crate) fn gated(parts: usize, gate: &Arc<Semaphore>) -> Arc<Self> {
        let gate = gate.clone();
        Self::new(move |request| {
            if is_sub_agent(request) {
                (text_events("Found."), Some(gate.clone()))
            } else {
                (root_script(request, parts), None)
            }
        })
    }

    /// Returns the conversations of all requests, in the order of the requests.
    pub(crate) fn conversations(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|one| one.session.clone()).collect()
    }

    pub(crate) fn requests(&self, of_sub_agents: bool) -> Vec<ChatRequest> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|one| is_sub_agent(one) == of_sub_agents).cloned().collect()
    }
}

impl ChatModel for FunctionModel {
    fn name(&self) -> &str {
        "function"
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        self.requests.lock().unwrap().push(request.clone());
        let (events, gate) = (self.script)(&request);
        async move {
            if is_sub_agent(&request) {
                let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(running, Ordering::SeqCst);
            }
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            if is_sub_agent(&request) {
                self.running.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(stream::iter(events.into_iter().map(Ok)).boxed())
        }
        .boxed()
    }
}

pub(crate) fn is_sub_agent(request: &ChatRequest) -> bool {
    request.session.starts_with("subagent-")
}

/// Returns `true` for a request of a turn that reads results.
pub(crate) fn is_fold(request: &ChatRequest) -> bool {
    exchange(request).0.contains("[Subagent task")
}

/// Returns the last user message and the tool results after it.
pub(crate) fn exchange(request: &ChatRequest) -> (String, Vec<String>) {
    let (mut text, mut results) = (String::new(), Vec::new());
    for message in &request.messages {
        match message {
            ChatMessage::User(user) => (text, results) = (user.clone(), Vec::new()),
            ChatMessage::Tool { content, .. } => results.push(content.clone()),
            _ => {}
        }
    }
    (text, results)
}

pub(crate) fn call_all(calls: &[(&str, Value)]) -> Vec<ChatEvent> {
    let delta = |(index, (name, arguments)): (usize, &(&str, Value))| ChatEvent::ToolCallDelta {
        index: Some(index.try_into().unwrap()),
        id: Some(format!("call-{index}")),
        name: Some((*name).to_owned()),
        arguments: arguments.to_string(),
    };
    let deltas = calls.iter().enumerate().map(delta);
    deltas.chain([ChatEvent::Finished(FinishReason::ToolCalls)]).collect()
}

/// Returns calls that start `count` sub-agents.
pub(crate) fn spawns(count: usize) -> Vec<(&'static str, Value)> {
    let call = |number| ("spawn_subagent", json!({"description": format!("part {number}")}));
    (1..=count).map(call).collect()
}

/// Spawns `count` sub-agents for the message `go`, and summarizes results.
pub(crate) fn root_script(request: &ChatRequest, count: usize) -> Vec<ChatEvent> {
    let (text, results) = exchange(request);
    if is_fold(request) {
        text_events("All parts are done.")
    } else if text.starts_with("go") && results.is_empty() {
        call_all(&spawns(count))
    } else {
        text_events("Started.")
    }
}

/// A bus, stores, and the processes of an agent on them.
pub(crate) struct Fleet {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) stores: Stores,
    pub(crate) approvals: Option<Arc<Approvals>>,
    pub(crate) options: DelegationOptions,
    pub(crate) budget: BudgetLimits,
    pub(crate) internal: InternalTools,
    pub(crate) strategy: ExecutionStrategy,
    /// Tools of the agent.
    pub(crate) filter: ToolFilter,
    pub(crate) memory: Option<WorkingMemory>,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        Self {
            bus: Arc::new(MemoryBus::new()),
            stores: Stores::memory(Clock::System),
            approvals: None,
            options: DelegationOptions::default(),
            budget: BudgetLimits::default(),
            internal: InternalTools::default(),
            strategy: ExecutionStrategy::default(),
            filter: ToolFilter::default(),
            memory: None,
        }
    }

    pub(crate) fn agent(&self, model: &Arc<FunctionModel>, tools: &[&Arc<ProbeTool>]) -> Agent {
        let AgentFixture { mut definition, registry, .. } = AgentFixture::new();
        definition.max_iterations = 100;
        definition.internal = self.internal.clone();
        definition.strategy = self.strategy;
        definition.tools = self.filter.clone();
        for tool in tools {
            registry.register(tool.as_tool()).unwrap();
        }
        for tool in self.memory.iter().flat_map(working_memory_tools) {
            registry.register(tool).unwrap();
        }
        let delegation = Delegation::new(self.options.clone());
        for tool in delegation.tools() {
            registry.register(tool).unwrap();
        }
        let model: Arc<dyn ChatModel> = model.clone();
        let Stores { store, log } = self.stores.clone();
        let conversations =
            Conversations::new(log, store, tester(), ConversationOptions::default());
        Agent::new(AgentParts {
            conversations,
            approvals: self.approvals.clone(),
            delegation: Some(delegation),
            working_memory: self.memory.clone(),
            limits: AgentLimits { budget: self.budget, ..AgentLimits::default() },
            ..AgentParts::new(definition, model, registry)
        })
    }

    pub(crate) async fn replica(&self, agent: &Agent, name: &str) -> AgentInbox {
        let sharing = Sharing::new(self.stores.store.clone(), InstanceId::new(name).unwrap());
        serve_shared(agent.clone(), self.bus.clone(), 16, sharing).await.unwrap()
    }

    /// Serves the agent alone, with requests about its work.
    pub(crate) async fn serve(&self, agent: Agent) -> (AgentInbox, ConversationService) {
        let requests = ConversationServiceBuilder::for_agent(agent.clone());
        let inbox = serve(agent, self.bus.clone(), 16).await.unwrap();
        (inbox, requests.serve(self.bus.clone()).await.unwrap())
    }

    pub(crate) async fn client(&self, name: &str) -> (AgentClient, FollowUps) {
        let instance = InstanceId::new(name).unwrap();
        let client = AgentClient::connect(self.bus.clone(), &instance).await.unwrap();
        let follow_ups = client.follow_ups().unwrap();
        (client, follow_ups)
    }
}

pub(crate) fn tester() -> AgentName {
    AgentName::new("tester").unwrap()
}

pub(crate) async fn say(client: &AgentClient, text: &str) -> (String, Option<TurnUsage>) {
    let replies = client.send(&tester(), &message("s", text)).await.unwrap();
    let reply = within_timeout("an answer", replies.last()).await.unwrap();
    let ReplyBody::Answer { text, usage, .. } = reply.body else { panic!("{reply:?}") };
    (text, usage)
}

/// Returns the next further answer, and the replies before it.
pub(crate) async fn follow_up(
    follow_ups: &mut FollowUps,
) -> (Vec<TaskId>, String, TurnUsage, Vec<AgentReply>) {
    let mut before = Vec::new();
    loop {
        let reply = within_timeout("a follow-up", follow_ups.next()).await.unwrap();
        match reply.body {
            ReplyBody::FollowUp { task_ids, text, usage, .. } => {
                return (task_ids, text, usage.unwrap(), before);
            }
            _ => before.push(reply),
        }
    }
}

pub(crate) async fn tasks(client: &AgentClient) -> Vec<TaskSummary> {
    let response = client.request(&tester(), &ConversationRequest::Tasks {}).await.unwrap();
    let ConversationResponse::Tasks { tasks } = response else { panic!("{response:?}") };
    tasks
}

/// Waits until the work of an agent is as expected, and returns it.
pub(crate) async fn wait_for_tasks(
    client: &AgentClient,
    what: &str,
    is_met: impl Fn(&[TaskSummary]) -> bool,
) -> Vec<TaskSummary> {
    let mut poll = tokio::time::interval(Duration::from_millis(5));
    let reached = async {
        loop {
            poll.tick().await;
            let tasks = tasks(client).await;
            if is_met(&tasks) {
                return tasks;
            }
        }
    };
    within_timeout(what, reached).await
}

/// Waits until no process has the lease of a conversation, and takes it as a process that dies at once.
pub(crate) async fn lease_of_dead_process(
    store: &Arc<dyn Store>,
    agent: &str,
    session: &str,
    ttl: Duration,
) -> Lease {
    let key = Key::new(["conversation-owners", agent, session]).unwrap();
    let acquired = async {
        loop {
            match Lease::acquire(store.clone(), key.clone(), "dead", ttl).await {
                Ok(lease) => return lease,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    within_timeout("the lease", acquired).await
}
