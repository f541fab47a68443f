//! A model that delegates and schedules in every response: each pair of mechanisms stays within its budgets.

use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rockbot_agent::{
    A2aRules, Agent, AgentClient, AgentDefinition, AgentDirectory, AgentInbox, AgentLimits,
    AgentParts, ConversationOptions, ConversationService, ConversationServiceBuilder,
    Conversations, Delegation, DelegationOptions, Destinations, PeerService, Schedule,
    ScheduleSection, Scheduler, Sharing, Team, serve_shared,
};
use rockbot_contracts::{
    AgentName, InstanceId, ReplyBody, ScheduleRequest, ScheduleResponse,
    schedule::ScheduledTaskInfo,
};
use rockbot_llm::{ChatEvent, ChatMessage, ChatModel, ChatRequest, ToolChoice};
use rockbot_store::{Clock, DocumentStore, Stores};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::{BudgetLimits, ToolRegistry};
use serde_json::{Value, json};

use crate::{
    harness::{Behavior, ProbeTool, message, register_members, text_events},
    peer_chains::is_read,
    peer_harness::name,
    schedule_harness::Site,
    subagent_harness::{FunctionModel, call_all},
};

const HANDOFF: &str = "router__handoff-to";
const SCHEDULE: &str = "schedule_task";
const MINUTE: Duration = Duration::from_secs(60);
/// Tasks at a time.
const MAX_SCHEDULED: usize = 2;
/// Time in which scheduled tasks fire, in minutes.
const MINUTES: usize = 3;

/// The limits of each message, and of each fire of a scheduled task.
const LIMITS: BudgetLimits = BudgetLimits {
    model_calls: 24,
    tool_calls: 80,
    delegations: 8,
    tokens: 2_000_000,
    cost_micros: None,
    depth: 3,
};

/// The calls of a model that delegates whatever it can.
fn every_mechanism() -> [(&'static str, Value); 9] {
    let step = json!({"id": "a", "mode": "Llm", "prompt": "Think."});
    let plans = json!({"definitions": [{"description": "A plan", "steps": [step]}]});
    let item = json!({"id": 1, "tool": "echo", "parameters": {}});
    [
        (SCHEDULE, json!({})),
        ("invoke_agent", json!({"agent_name": "worker", "skill": "ask", "message": "Go on."})),
        (HANDOFF, json!({"agent": "helper", "message": "Go on."})),
        ("agent__helper", json!({"message": "Go on."})),
        ("subagent__reviewer", json!({"task": "Go on."})),
        ("spawn_subagent", json!({"description": "a part"})),
        ("spawn_wisps", plans),
        ("agent__batch", json!({"calls": [item]})),
        ("echo", json!({})),
    ]
}

/// Makes these calls in every response, until the model must answer. Scheduled tasks have new names. A handoff is
/// the only call of its response, so each second response is one.
fn greedy(request: &ChatRequest, calls: &[(&'static str, Value)], number: usize) -> Vec<ChatEvent> {
    if matches!(request.tool_choice, ToolChoice::None) {
        return text_events("As far as I came.");
    }
    let responses = request.messages.iter();
    let responses = responses.filter(|one| matches!(one, ChatMessage::Assistant { .. })).count();
    let named = |call: &(&'static str, Value)| match call.0 {
        SCHEDULE => (
            SCHEDULE,
            json!({"name": format!("again {number}"), "cron": "* * * * *", "run_once": true,
                "description": "Go on."}),
        ),
        _ => call.clone(),
    };
    let (handoffs, others): (Vec<_>, Vec<_>) =
        calls.iter().map(named).partition(|(name, _)| *name == HANDOFF);
    let is_handoff = others.is_empty() || !handoffs.is_empty() && responses % 2 == 1;
    call_all(if is_handoff { &handoffs } else { &others })
}

fn definition(agent: &str, more: &str) -> AgentDefinition {
    let text = format!(
        "+++\nname = '{agent}'\nmax_iterations = 100\n[internal]\nbatch = true\nwisps = true\n\
         {more}\n+++\nBe brief."
    );
    let a2a = A2aRules { expose: true, ..A2aRules::default() };
    AgentDefinition { a2a, ..AgentDefinition::parse(Path::new("x.md"), &text).unwrap() }
}

/// A process of an agent that is on the bus.
struct Served {
    agent: Agent,
    inbox: AgentInbox,
    directory: Arc<AgentDirectory>,
    _peers: PeerService,
}

/// An agent with every mechanism, a worker beside it, and a user.
struct Greedy {
    site: Site,
    model: Arc<FunctionModel>,
    echo: Arc<ProbeTool>,
    client: AgentClient,
    _front: (Served, Scheduler, ConversationService, Team),
    _worker: Served,
}

async fn serve(site: &Site, agent: Agent, stores: &Stores) -> Served {
    let (bus, instance) = (site.bus.clone(), InstanceId::new(agent.name().as_str()).unwrap());
    let sharing = Sharing::new(stores.store.clone(), instance.clone());
    let inbox = serve_shared(agent.clone(), bus.clone(), 16, sharing).await.unwrap();
    let directory = Arc::new(AgentDirectory::new(agent.name().clone(), None));
    let peers = PeerService::start(&agent, bus, directory.clone(), &instance).await;
    Served { agent, inbox, directory, _peers: peers.unwrap().expect("it delegates work") }
}

fn conversations(agent: &str, stores: &Stores) -> Conversations {
    let Stores { store, log } = stores.clone();
    Conversations::new(log, store, name(agent), ConversationOptions::default())
}

impl Greedy {
    async fn start(calls: Vec<(&'static str, Value)>) -> Self {
        let site = Site::at("2026-08-03T06:00:30Z");
        let number = AtomicUsize::new(0);
        let model = FunctionModel::new(move |request| {
            (greedy(request, &calls, number.fetch_add(1, Ordering::SeqCst)), None)
        });
        let echo = ProbeTool::new("echo", Behavior::Echo);
        let limits = || AgentLimits { budget: LIMITS, ..AgentLimits::default() };

        let registry = Arc::new(ToolRegistry::new());
        let delegation = Delegation::new(DelegationOptions::default());
        let front_conversations = conversations("front", &site.stores);
        let section = ScheduleSection { max_tasks: MAX_SCHEDULED, ..ScheduleSection::default() };
        let schedule = Schedule::new(&front_conversations, section, None);
        let tools = delegation.tools().into_iter().chain(delegation.peer_tools());
        for tool in tools.chain(schedule.tools()).chain([echo.as_tool()]) {
            registry.register(tool).unwrap();
        }
        let destinations = Arc::new(Destinations::default());
        let parts = {
            let (model, registry, destinations) =
                (model.clone(), registry.clone(), destinations.clone());
            move |definition: AgentDefinition| {
                let model: Arc<dyn ChatModel> = model.clone();
                let parts = AgentParts::new(definition, model, registry.clone());
                AgentParts { destinations: Some(destinations.clone()), limits: limits(), ..parts }
            }
        };
        let reviewer = "[[subagents.tool]]\nname = 'reviewer'\ndescription = 'Reviews.'\n\
            prompt = 'You review.'\nmax_iterations = 100\n[router]\ndestinations = ['helper']";
        let front = Agent::new(AgentParts {
            conversations: front_conversations,
            delegation: Some(delegation),
            ..parts(definition("front", reviewer))
        });
        let team = Team::new(name("front"), Arc::new(parts)).with_destinations(destinations);
        team.set_definitions(vec![definition("helper", "[router]\ndestinations = ['front']")]);
        register_members(&team, &registry);
        let front = serve(&site, front, &site.stores).await;
        let server = ConversationServiceBuilder::for_agent(front.agent.clone());
        let server = server.with_schedule(Some(schedule.clone()));
        let service = server.serve(site.bus.clone()).await.unwrap();
        let scheduler =
            Scheduler::start(schedule, front.agent.clone(), site.bus.clone(), &front.inbox);

        let (stores, registry) = (Stores::memory(Clock::System), Arc::new(ToolRegistry::new()));
        let delegation = Delegation::new(DelegationOptions::default());
        let tools = delegation.tools().into_iter().chain(delegation.peer_tools());
        for tool in tools.chain([echo.as_tool()]) {
            registry.register(tool).unwrap();
        }
        let worker_model: Arc<dyn ChatModel> = model.clone();
        let worker = Agent::new(AgentParts {
            conversations: conversations("worker", &stores),
            delegation: Some(delegation),
            limits: limits(),
            ..AgentParts::new(definition("worker", ""), worker_model, registry)
        });
        let worker = serve(&site, worker, &stores).await;
        wait_until("the worker is known", || !front.directory.all().is_empty()).await;
        let instance = InstanceId::new("proxy").unwrap();
        let client = AgentClient::connect(site.bus.clone(), &instance).await.unwrap();
        let front = (front, scheduler, service, team);
        Self { site, model, echo, client, _front: front, _worker: worker }
    }

    async fn scheduled(&self) -> Vec<ScheduledTaskInfo> {
        let front: AgentName = name("front");
        match self.client.request_schedule(&front, &ScheduleRequest::List {}).await.unwrap() {
            ScheduleResponse::Tasks { tasks, .. } => tasks,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until no fire runs, and all results of delegated work were read.
    async fn settle(&self) {
        let none: [&str; 0] = [];
        let records: DocumentStore<Value> =
            DocumentStore::new(self.site.stores.store.clone(), ["tasks", "front"]);
        let mut poll = tokio::time::interval(Duration::from_secs(1));
        let settled = async {
            loop {
                poll.tick().await;
                let fires = self.scheduled().await.iter().any(|task| task.running.is_some());
                let all = records.list(&none, 1000).await.unwrap();
                if !fires && all.iter().all(|(_, record)| is_read(&record.value)) {
                    return;
                }
            }
        };
        within_timeout("the end of all work", settled).await;
    }

    /// Lets the scheduled tasks fire for some minutes. Returns the number of fires.
    async fn fire_for(&self, minutes: usize) -> usize {
        let mut fired = 0;
        for _ in 0..minutes {
            let due = self.scheduled().await;
            assert!(due.len() <= MAX_SCHEDULED, "{due:?}");
            fired += due.len();
            self.site.clock.advance(MINUTE);
            let names: HashSet<_> = due.into_iter().map(|task| task.name).collect();
            let mut poll = tokio::time::interval(Duration::from_secs(1));
            let all_fired = async {
                loop {
                    poll.tick().await;
                    // Each is removed after its fire.
                    if !self.scheduled().await.iter().any(|task| names.contains(&task.name)) {
                        return;
                    }
                }
            };
            within_timeout("the fires", all_fired).await;
            self.settle().await;
        }
        fired
    }
}

/// Runs a model that always makes these calls, until nothing is left to do but its scheduled tasks, and then some of
/// their fires. Like a task at intervals, they end when a person cancels them.
async fn check(calls: Vec<(&'static str, Value)>) {
    let names: Vec<_> = calls.iter().map(|(name, _)| *name).collect();
    let greedy = Greedy::start(calls).await;
    let replies = greedy.client.send(&name("front"), &message("s", "go")).await.unwrap();
    let reply = within_timeout("an answer", replies.last()).await.unwrap();
    assert!(matches!(reply.body, ReplyBody::Answer { .. }), "{names:?}: {reply:?}");
    greedy.settle().await;
    let requests = || greedy.model.conversations().len() as u64;
    let of_message = requests();
    assert!((2..=LIMITS.model_calls).contains(&of_message), "{names:?}: {of_message} requests");
    let fires = greedy.fire_for(MINUTES).await;
    let is_scheduling = names.contains(&SCHEDULE);
    let expected = if is_scheduling { 1..=MAX_SCHEDULED * MINUTES } else { 0..=0 };
    assert!(expected.contains(&fires), "{names:?}: {fires} fires");
    let budgets = 1 + fires as u64;
    assert!(requests() <= budgets * LIMITS.model_calls, "{names:?}: {} requests", requests());
    assert!(greedy.echo.calls() as u64 <= budgets * LIMITS.tool_calls, "{names:?}");
}

/// Checks a mechanism alone and with each later one.
async fn check_pairs_with(first: &str) {
    let every = every_mechanism();
    let at = every.iter().position(|(name, _)| *name == first).expect("a mechanism");
    check(vec![every[at].clone()]).await;
    for second in &every[at + 1..] {
        check(vec![every[at].clone(), second.clone()]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fires_stay_within_their_budgets_with_each_other_mechanism() {
    check_pairs_with(SCHEDULE).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_at_agents_end_with_each_other_mechanism() {
    check_pairs_with("invoke_agent").await;
}

#[tokio::test(start_paused = true)]
async fn handoffs_end_with_each_other_mechanism() {
    check_pairs_with(HANDOFF).await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_agents_end_with_each_other_mechanism() {
    check_pairs_with("agent__helper").await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_sub_agents_end_with_each_other_mechanism() {
    check_pairs_with("subagent__reviewer").await;
}

#[tokio::test(start_paused = true)]
async fn all_mechanisms_together_end() {
    check(every_mechanism().into()).await;
}
