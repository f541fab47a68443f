//! Agents that delegate tasks to each other over one bus, each with a store and a model of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use rockbot_agent::{
    A2aRules, Agent, AgentClient, AgentDirectory, AgentInbox, AgentLimits, AgentParts,
    ConversationOptions, Conversations, Delegation, DelegationOptions, FollowUps, PeerService,
    Replies, Sharing, internal_tools::InternalTools, serve_shared,
};
use rockbot_bus::{Bus, Consumer, MemoryBus, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, AgentTaskCancelRequest, AgentTaskRequest, Envelope, InstanceId, Message,
    MessageId, QueueSpec, ReplyBody, RoutingKey, TaskId, TaskMessage, TaskState, UserMessage,
    identity::User,
    json::Limits,
    topology::{agent_response_at, agent_task, agent_task_cancel},
};
use rockbot_llm::{
    ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, ToolChoice,
};
use rockbot_store::{Clock, DocumentStore, Expected, PutOutcome, Stores};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::BudgetLimits;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    harness::{AgentFixture, message, text_events},
    subagent_harness::call_all,
};

/// The last user message of a request, the results after it, and the offered tools.
pub(crate) struct Asked {
    pub(crate) user: String,
    pub(crate) results: Vec<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) session: String,
    /// The model may not call tools.
    pub(crate) must_answer: bool,
}

/// An answer of the model.
pub(crate) enum Planned {
    Text(&'static str),
    Call(&'static str, Value),
    Calls(Vec<(&'static str, Value)>),
    /// Waits for a permit.
    After(Arc<Semaphore>, Box<Planned>),
}

impl Planned {
    fn gate(self) -> (Option<Arc<Semaphore>>, Self) {
        match self {
            Self::After(gate, planned) => (Some(gate), *planned),
            planned => (None, planned),
        }
    }

    fn events(self) -> Vec<ChatEvent> {
        match self {
            Self::Text(text) => text_events(text),
            Self::Call(name, arguments) => call_all(&[(name, arguments)]),
            Self::Calls(calls) => call_all(&calls),
            Self::After(_, planned) => planned.events(),
        }
    }
}

/// Returns a text that waits for a permit.
pub(crate) fn gated(gate: &Arc<Semaphore>, text: &'static str) -> Planned {
    Planned::After(gate.clone(), Box::new(Planned::Text(text)))
}

type Plan = Box<dyn Fn(&Asked) -> Planned + Send + Sync>;

/// A model that answers as a function of the request.
pub(crate) struct PlannedModel {
    plan: Plan,
    asked: Mutex<Vec<Arc<Asked>>>,
}

impl PlannedModel {
    pub(crate) fn asked(&self) -> Vec<Arc<Asked>> {
        self.asked.lock().unwrap().clone()
    }
}

impl ChatModel for PlannedModel {
    fn name(&self) -> &str {
        "planned"
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let asked = Arc::new(Asked::from(&request));
        self.asked.lock().unwrap().push(asked.clone());
        let (gate, planned) = (self.plan)(&asked).gate();
        async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            Ok(stream::iter(planned.events().into_iter().map(Ok)).boxed())
        }
        .boxed()
    }
}

impl From<&ChatRequest> for Asked {
    fn from(request: &ChatRequest) -> Self {
        let (mut user, mut results) = (String::new(), Vec::new());
        for message in &request.messages {
            match message {
                ChatMessage::User(text) => (user, results) = (text.clone(), Vec::new()),
                ChatMessage::Tool { content, .. } => results.push(content.clone()),
                _ => {}
            }
        }
        let tools = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let must_answer = matches!(request.tool_choice, ToolChoice::None);
        Self { user, results, tools, session: request.session.clone(), must_answer }
    }
}

/// A call of `invoke_agent`.
pub(crate) fn invoke(agent: &str, message: &str) -> Planned {
    Planned::Call("invoke_agent", json!({"agent_name": agent, "skill": "ask", "message": message}))
}

/// Asks `worker`, and reads its result.
pub(crate) fn asks_worker(asked: &Asked) -> Planned {
    if asked.user.contains("[Agent 'worker' answered") {
        Planned::Text("The worker found it.")
    } else if asked.user.contains("A late result") {
        Planned::Text("It is late.")
    } else if asked.user.contains("of agent 'worker'") {
        Planned::Text("The worker failed.")
    } else if asked.user.starts_with("go") && asked.results.is_empty() {
        invoke("worker", "Find it.")
    } else {
        Planned::Text("I wait for the worker.")
    }
}

pub(crate) fn name(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

/// A running agent.
pub(crate) struct Peer {
    pub(crate) agent: Agent,
    pub(crate) model: Arc<PlannedModel>,
    pub(crate) service: PeerService,
    pub(crate) directory: Arc<AgentDirectory>,
    stores: Stores,
    _inbox: AgentInbox,
}

/// Agents on one bus, and a user.
pub(crate) struct Peers {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) agents: BTreeMap<String, Peer>,
    options: DelegationOptions,
    budget: BudgetLimits,
    clock: Clock,
    client: AgentClient,
    follow_ups: FollowUps,
}

impl Peers {
    pub(crate) async fn start() -> Self {
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let instance = InstanceId::new("proxy").unwrap();
        let client = AgentClient::connect(bus.clone(), &instance).await.unwrap();
        let follow_ups = client.follow_ups().unwrap();
        let options = DelegationOptions::default();
        let (budget, clock) = (BudgetLimits::default(), Clock::System);
        Self { bus, agents: BTreeMap::new(), options, budget, clock, client, follow_ups }
    }

    /// Sets the limits of the agents that are started later.
    pub(crate) fn with_options(self, options: DelegationOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets the budget of each message to the agents that are started later.
    pub(crate) fn with_budget(self, budget: BudgetLimits) -> Self {
        Self { budget, ..self }
    }

    /// Sets the clock of the stores of the agents that are started later.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Starts an agent that accepts tasks of all others.
    pub(crate) async fn with(
        self,
        agent: &str,
        plan: impl Fn(&Asked) -> Planned + Send + Sync + 'static,
    ) -> Self {
        let rules = A2aRules { expose: true, ..A2aRules::default() };
        self.with_rules(agent, rules, plan).await
    }

    pub(crate) async fn with_rules(
        mut self,
        agent: &str,
        rules: A2aRules,
        plan: impl Fn(&Asked) -> Planned + Send + Sync + 'static,
    ) -> Self {
        let model = Arc::new(PlannedModel { plan: Box::new(plan), asked: Mutex::default() });
        let stores = Stores::memory(self.clock.clone());
        let is_exposed = rules.expose;
        let peer = self.run(agent, rules, &model, &stores, agent).await;
        self.agents.insert(agent.to_owned(), peer);
        if is_exposed {
            self.know_each_other().await;
        }
        self
    }

    /// Starts a process of an agent.
    pub(crate) async fn run(
        &self,
        agent: &str,
        rules: A2aRules,
        model: &Arc<PlannedModel>,
        stores: &Stores,
        instance: &str,
    ) -> Peer {
        let AgentFixture { mut definition, registry, .. } = AgentFixture::new();
        (definition.name, definition.a2a) = (name(agent), rules);
        definition.internal =
            InternalTools { batch: true, wisps: true, ..InternalTools::default() };
        let delegation = Delegation::new(self.options.clone());
        for tool in delegation.tools().into_iter().chain(delegation.peer_tools()) {
            registry.register(tool).unwrap();
        }
        let chat_model: Arc<dyn ChatModel> = model.clone();
        let Stores { store, log } = stores.clone();
        let options = ConversationOptions::default();
        let conversations = Conversations::new(log, store.clone(), name(agent), options);
        let agent = Agent::new(AgentParts {
            conversations,
            delegation: Some(delegation),
            limits: AgentLimits { budget: self.budget, ..AgentLimits::default() },
            ..AgentParts::new(definition, chat_model, registry)
        });
        let instance = InstanceId::new(instance).unwrap();
        let sharing = Sharing::new(store, instance.clone());
        let inbox = serve_shared(agent.clone(), self.bus.clone(), 16, sharing).await.unwrap();
        let directory = Arc::new(AgentDirectory::new(agent.name().clone(), None));
        let service =
            PeerService::start(&agent, self.bus.clone(), directory.clone(), &instance).await;
        let service = service.unwrap().expect("it delegates work");
        let (model, stores) = (model.clone(), stores.clone());
        Peer { agent, model, service, directory, stores, _inbox: inbox }
    }

    async fn know_each_other(&self) {
        let others = self.agents.len() - 1;
        wait_until("all agents know each other", || {
            self.agents.values().all(|peer| peer.directory.all().len() >= others)
        })
        .await;
    }

    pub(crate) fn agent(&self, agent: &str) -> &Peer {
        &self.agents[agent]
    }

    /// Sends a message to an agent and returns the answer of its turn.
    pub(crate) async fn say(&self, agent: &str, text: &str) -> String {
        self.send(agent, &message("s", text)).await
    }

    /// Sends a message to an agent and returns the replies of its turn.
    pub(crate) async fn begin(&self, agent: &str, message: &UserMessage) -> Replies {
        self.client.send(&name(agent), message).await.unwrap()
    }

    pub(crate) async fn send(&self, agent: &str, message: &UserMessage) -> String {
        let replies = self.begin(agent, message).await;
        let reply = within_timeout("an answer", replies.last()).await.unwrap();
        let ReplyBody::Answer { text, .. } = reply.body else { panic!("{reply:?}") };
        text
    }

    /// Returns the next further answer.
    pub(crate) async fn follow_up(&mut self) -> (Vec<TaskId>, String) {
        loop {
            let reply = within_timeout("a follow-up", self.follow_ups.next()).await.unwrap();
            if let ReplyBody::FollowUp { task_ids, text, .. } = reply.body {
                return (task_ids, text);
            }
        }
    }

    /// Returns the next reply that answers no message.
    pub(crate) async fn unasked(&mut self) -> Option<AgentReply> {
        self.follow_ups.next().await
    }

    /// Publishes a message of an agent.
    pub(crate) async fn publish<M: Message>(&self, key: RoutingKey, payload: &M, from: &str) {
        let envelope = Envelope::from_payload(payload).with_source(from);
        self.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
    }

    /// Publishes a message of an agent, whose broker user was validated.
    pub(crate) async fn publish_validated<M: Message>(
        &self,
        key: RoutingKey,
        payload: &M,
        from: &str,
    ) {
        let mut envelope = Envelope::from_payload(payload).with_source(from);
        envelope.user_id = Some(User::Agent(name(from)).name("rockbot").into());
        self.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
    }

    /// Consumes the responses to a program that asks agents.
    pub(crate) async fn responses(&self) -> Consumer {
        let key = program_address();
        let queue = QueueSpec::reply(&key, vec![(&key).into()]);
        self.bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap()
    }

    /// Sends a task as that program.
    pub(crate) async fn request(&self, agent: &str, request: &AgentTaskRequest) {
        self.publish_from_program(agent_task(&name(agent)), request).await;
    }

    /// Cancels a task as that program.
    pub(crate) async fn cancel_task(&self, agent: &str, task: &str) {
        let request = AgentTaskCancelRequest { task_id: TaskId::new(task).unwrap() };
        self.publish_from_program(agent_task_cancel(&name(agent)), &request).await;
    }

    /// Publishes a message about a task as that program.
    pub(crate) async fn publish_from_program<M: Message>(&self, key: RoutingKey, payload: &M) {
        let envelope = Envelope::from_payload(payload)
            .with_source("cli")
            .reply_to(program_address())
            .within(Duration::from_secs(60));
        self.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
    }
}

/// Returns the address of a program that asks agents.
fn program_address() -> RoutingKey {
    agent_response_at(&name("cli"), &InstanceId::new("test").unwrap())
}

/// Returns the next response of a type, and skips others.
pub(crate) async fn next<M: Message>(responses: &mut Consumer) -> M {
    loop {
        let delivery = within_timeout("a response", responses.next()).await.unwrap();
        let envelope = delivery.into_envelope();
        if envelope.message_type() == M::TYPE {
            return envelope.decode(Limits::default()).unwrap();
        }
    }
}

/// Returns a task for an agent.
pub(crate) fn task(id: &str, text: &str) -> AgentTaskRequest {
    AgentTaskRequest {
        task_id: TaskId::new(id).unwrap(),
        skill: "ask".to_owned(),
        message: TaskMessage::new(TaskMessage::USER, text, None)
            .with_id(MessageId::new(format!("message-{id}")).unwrap()),
        lineage: vec![name("cli")],
        depth: 0,
        budget: None,
    }
}

impl Peer {
    fn records(&self) -> DocumentStore<Value> {
        DocumentStore::new(self.stores.store.clone(), ["tasks", self.agent.name().as_str()])
    }

    /// Returns the records of the tasks of the agent.
    pub(crate) async fn tasks(&self) -> Vec<Value> {
        let none: [&str; 0] = [];
        let found = self.records().list(&none, 100).await.unwrap();
        found.into_iter().map(|(_, document)| document.value).collect()
    }

    /// Waits until the only task has a state, and returns its record.
    pub(crate) async fn task_in(&self, state: TaskState) -> Value {
        within_timeout(state.as_str(), async {
            loop {
                if let [task] = self.tasks().await.as_slice()
                    && task["state"] == state.as_str()
                {
                    return task.clone();
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Changes the record of a task.
    pub(crate) async fn change(&self, task: &TaskId, change: impl Fn(&mut Value)) {
        loop {
            let found = self.records().get(&[task.as_str()]).await.unwrap().unwrap();
            let mut value = found.value;
            change(&mut value);
            let expected = Expected::Version(found.version);
            let put = self.records().put(&[task.as_str()], &value, None, expected).await.unwrap();
            if matches!(put, PutOutcome::Done(_)) {
                return;
            }
        }
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }
}

/// Starts agents whose caller handed a task to a worker that does not end it.
pub(crate) async fn waiting_for_worker() -> Peers {
    let gate = Arc::new(Semaphore::new(0));
    let plan = move |_: &Asked| gated(&gate, "Done.");
    let peers = Peers::start().await.with("caller", asks_worker).await;
    let peers = peers.with("worker", plan).await;
    peers.say("caller", "go").await;
    peers
}
