//! An agent on the in-memory bus that hands tasks to remote agents, and remote agents to hand them to.

use std::{
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use rockbot_agent::{
    Agent, AgentClient, AgentDefinition, AgentDirectory, AgentInbox, AgentParts,
    ConversationOptions, Conversations, Delegation, DelegationOptions, FollowUps, PeerService,
    serve,
};
use rockbot_bus::{Bus, Consumer, MemoryBus, Publication, Subscription};
use rockbot_contracts::{
    AgentName, AgentTaskCancelRequest, AgentTaskRequest, Envelope, InstanceId, Message, MessageId,
    QueueSpec, ReplyBody, RoutingKey, SessionId, TaskId, TaskMessage, UserMessage,
    json::Limits,
    topology::{agent_response_at, agent_task, agent_task_cancel},
};
use rockbot_gateway::{GatewaySection, RemoteAgents};
use rockbot_llm::{ChatEvent, FinishReason};
use rockbot_store::{Clock, MemoryStore, Store, Stores};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tools::ToolRegistry;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use crate::fleet::EchoModel;

/// Name of the remote agent at the bus.
const PARTNER: &str = "partner";

fn name(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn partner() -> AgentName {
    name(PARTNER)
}

/// A bus with an agent that hands tasks to others, a program that does so too, and the store of gateways.
pub(crate) struct Delegators {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) model: Arc<EchoModel>,
    store: Arc<dyn Store>,
    directory: Arc<AgentDirectory>,
    client: AgentClient,
    follow_ups: FollowUps,
    responses: Consumer,
    _service: PeerService,
    _inbox: AgentInbox,
}

static GATEWAYS: AtomicUsize = AtomicUsize::new(0);

impl Delegators {
    pub(crate) async fn start() -> Self {
        Self::start_with(Arc::new(MemoryStore::new(Clock::System))).await
    }

    /// Starts them with the store of the gateways.
    pub(crate) async fn start_with(gateway_store: Arc<dyn Store>) -> Self {
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let (model, registry) = (Arc::new(EchoModel::default()), Arc::new(ToolRegistry::new()));
        let delegation = Delegation::new(DelegationOptions::default());
        for tool in delegation.tools().into_iter().chain(delegation.peer_tools()) {
            registry.register(tool).unwrap();
        }
        let Stores { store, log } = Stores::memory(Clock::System);
        let own = name("assistant");
        let options = ConversationOptions::default();
        let conversations = Conversations::new(log, store, own.clone(), options);
        let definition = AgentDefinition::new(own.clone(), "Be brief.");
        let agent = Agent::new(AgentParts {
            conversations,
            delegation: Some(delegation),
            ..AgentParts::new(definition, model.clone(), registry)
        });
        let inbox = serve(agent.clone(), bus.clone(), 16).await.unwrap();
        let directory = Arc::new(AgentDirectory::new(own, None));
        let instance = InstanceId::new("delegator").unwrap();
        let service = PeerService::start(&agent, bus.clone(), directory.clone(), &instance).await;
        let client = AgentClient::connect(bus.clone(), &instance).await.unwrap();
        let queue = QueueSpec::reply(&program(), vec![(&program()).into()]);
        let responses = bus.consume(Subscription::on_receipt(queue, 16)).await.unwrap();
        Self {
            follow_ups: client.follow_ups().unwrap(),
            store: gateway_store,
            bus,
            model,
            directory,
            client,
            responses,
            _service: service.unwrap().expect("it delegates work"),
            _inbox: inbox,
        }
    }

    /// Starts a gateway that serves the remote agent at `url`, and waits until agents know it.
    pub(crate) async fn gateway(&self, url: &str, keys: &str) -> RemoteAgents {
        let gateway = self.gateway_of_unknown(url, keys);
        wait_until("the remote agent is announced", || self.directory.get(&partner()).is_some())
            .await;
        gateway
    }

    /// As [`gateway`](Self::gateway), without waiting.
    pub(crate) fn gateway_of_unknown(&self, url: &str, keys: &str) -> RemoteAgents {
        let text = format!(
            "[remote_agents.{PARTNER}]\nurl = {url:?}\nallow_plain_http = true\n\
             allow_private = [\"127.0.0.1\"]\n{keys}"
        );
        let section: GatewaySection = toml::from_str(&text).unwrap();
        assert!(section.validate(false).is_empty(), "{:?}", section.validate(false));
        let number = GATEWAYS.fetch_add(1, Ordering::Relaxed);
        let instance = InstanceId::new(format!("gateway-{number}")).unwrap();
        let (bus, grace) = (self.bus.clone(), Duration::from_secs(10));
        let agents = &section.remote_agents;
        RemoteAgents::start(agents, &self.store, &instance, grace, |_| bus.clone()).unwrap()
    }

    pub(crate) fn knows_partner(&self) -> bool {
        self.directory.get(&partner()).is_some()
    }

    /// Makes the agent hand a task to the remote agent, and returns its answer to the result.
    pub(crate) async fn delegate(&mut self, skill: &str, message: &str) -> String {
        let arguments = json!({"agent_name": PARTNER, "skill": skill, "message": message});
        let call = ChatEvent::ToolCallDelta {
            index: Some(0),
            id: Some("call-1".to_owned()),
            name: Some("invoke_agent".to_owned()),
            arguments: arguments.to_string(),
        };
        self.model.respond_next(vec![call, ChatEvent::Finished(FinishReason::ToolCalls)]);
        let message = UserMessage::new(SessionId::new("s").unwrap(), "go");
        let replies = self.client.send(&name("assistant"), &message).await.unwrap();
        within_timeout("the first answer", replies.last()).await.unwrap();
        loop {
            let reply = within_timeout("a follow-up", self.follow_ups.next()).await.unwrap();
            if let ReplyBody::FollowUp { text, .. } = reply.body {
                return text;
            }
        }
    }

    /// Sends a message of a task as the program.
    pub(crate) async fn request(&self, task: &str, message: &str, text: &str) {
        self.request_within(task, message, text, Duration::from_secs(120)).await;
    }

    /// As [`request`](Self::request), with the time limit of the task.
    pub(crate) async fn request_within(
        &self,
        task: &str,
        message: &str,
        text: &str,
        limit: Duration,
    ) {
        let request = AgentTaskRequest {
            task_id: TaskId::new(task).unwrap(),
            skill: "find".to_owned(),
            message: TaskMessage::new(TaskMessage::USER, text, None)
                .with_id(MessageId::new(message).unwrap()),
            lineage: vec![name("cli")],
            depth: 0,
            budget: None,
        };
        self.publish(agent_task(&partner()), &request, limit).await;
    }

    pub(crate) async fn cancel(&self, task: &str) {
        let request = AgentTaskCancelRequest { task_id: TaskId::new(task).unwrap() };
        let limit = Duration::from_secs(120);
        self.publish(agent_task_cancel(&partner()), &request, limit).await;
    }

    async fn publish<M: Message>(&self, key: RoutingKey, payload: &M, limit: Duration) {
        let envelope =
            Envelope::from_payload(payload).with_source("cli").reply_to(program()).within(limit);
        self.bus.publish(Publication::mandatory(key, envelope)).await.unwrap();
    }

    /// Returns the next response of a type to the program, and skips others.
    pub(crate) async fn response<M: Message>(&mut self) -> M {
        loop {
            let delivery = within_timeout(M::TYPE, self.responses.next()).await.unwrap();
            let envelope = delivery.into_envelope();
            if envelope.message_type() == M::TYPE {
                return envelope.decode(Limits::default()).unwrap();
            }
        }
    }
}

/// Returns the address of a program that hands tasks to agents.
fn program() -> RoutingKey {
    agent_response_at(&name("cli"), &InstanceId::new("test").unwrap())
}

/// An agent behind the Python server of A2A.
pub(crate) struct PythonAgent {
    pub(crate) url: String,
    lines: Lines<BufReader<ChildStdout>>,
    input: ChildStdin,
    _child: Child,
}

impl PythonAgent {
    /// Starts it; `mode` is `streaming` or `polling`.
    pub(crate) async fn start(mode: &str) -> Self {
        Self::start_with(mode, None).await
    }

    /// Starts it with a card that is signed with a private key.
    pub(crate) async fn start_with(mode: &str, signing_key: Option<&Path>) -> Self {
        let programs = std::env::var_os("ROCKBOT_TEST_A2A_CLIENTS")
            .expect("ROCKBOT_TEST_A2A_CLIENTS is not set: run the tests with `cargo xtask test`");
        let mut child = Command::new(Path::new(&programs).join("python-server"))
            .arg(mode)
            .args(signing_key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        let first = within_timeout("the server listens", lines.next_line()).await.unwrap().unwrap();
        let port = first.strip_prefix("listening ").unwrap();
        Self { url: format!("http://127.0.0.1:{port}"), lines, input, _child: child }
    }

    /// Returns the next line about its work.
    pub(crate) async fn line(&mut self) -> String {
        within_timeout("a line", self.lines.next_line()).await.unwrap().unwrap()
    }

    /// Lets a task with the word "wait" end.
    pub(crate) async fn go(&mut self) {
        self.input.write_all(b"go\n").await.unwrap();
    }

    /// Ends it, and returns the lines that were not read.
    pub(crate) async fn rest(mut self) -> Vec<String> {
        drop(self.input);
        let mut rest = Vec::new();
        while let Some(line) = within_timeout("its end", self.lines.next_line()).await.unwrap() {
            rest.push(line);
        }
        rest
    }
}

/// Behavior of a hostile agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hostility {
    /// A response without an end.
    HugeBody,
    /// A stream of progress without an end.
    EndlessStream,
    /// A stream with one event without an end.
    EndlessEvent,
    /// A redirect to the address of metadata in clouds.
    Redirect,
    /// The connection is closed after the request.
    Cut,
    /// The task requires credentials.
    AuthRequired,
    /// The response is about no task.
    NoTask,
    /// The first response rejects the task.
    Rejected,
    /// The task is rejected after it has begun.
    RejectedLater,
    /// The request is refused with a status that may follow the work on it.
    Conflict,
}

#[derive(Clone)]
struct Hostile {
    kind: Hostility,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Value>>>,
}

/// A hostile agent.
pub(crate) struct HostileAgent {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Value>>>,
    serving: JoinHandle<()>,
}

impl HostileAgent {
    pub(crate) async fn start(kind: Hostility) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let state = Hostile { kind, address, requests: Arc::clone(&requests) };
        let router = Router::new()
            .route("/.well-known/agent-card.json", get(card))
            .route("/rpc", post(rpc))
            .with_state(state);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url: format!("http://{address}"), requests, serving }
    }

    /// Returns the parameters of the requests of a method.
    pub(crate) fn requests(&self, method: &str) -> Vec<Value> {
        let requests = self.requests.lock();
        let of_method = requests.iter().filter(|request| request["method"] == method);
        of_method.map(|request| request["params"].clone()).collect()
    }
}

impl Drop for HostileAgent {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn card(State(hostile): State<Hostile>) -> Json<Value> {
    let streams = matches!(hostile.kind, Hostility::EndlessStream | Hostility::EndlessEvent);
    Json(json!({
        "name": "hostile",
        "description": "Does not do things.",
        "supportedInterfaces": [{"url": format!("http://{}/rpc", hostile.address),
            "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": streams},
        "skills": [{"id": "find", "name": "Find"}],
    }))
}

async fn rpc(State(hostile): State<Hostile>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let method = request["method"].as_str().unwrap().to_owned();
    hostile.requests.lock().push(request);
    let status = |state: &str| json!({"state": state});
    let result = |result: Value| Json(json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    if method == "CancelTask" {
        return result(json!({"id": "t", "status": status("TASK_STATE_CANCELED")})).into_response();
    }
    let rejected = json!({"id": "t", "status": status("TASK_STATE_REJECTED")});
    if method == "GetTask" {
        return result(rejected).into_response();
    }
    let working = json!({"task": {"id": "t", "status": status("TASK_STATE_WORKING")}});
    let event = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": working}));
    match hostile.kind {
        Hostility::HugeBody => endless("application/json", "", "x".repeat(64 * 1024)),
        Hostility::EndlessStream => endless("text/event-stream", &event, event.repeat(1000)),
        Hostility::EndlessEvent => {
            endless("text/event-stream", &format!("{event}data: "), "x".repeat(64 * 1024))
        }
        Hostility::Redirect => {
            let to = "http://169.254.169.254/latest/meta-data/";
            axum::response::Redirect::temporary(to).into_response()
        }
        Hostility::Cut => {
            let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
            ([(CONTENT_TYPE, "application/json")], Body::from_stream(broken)).into_response()
        }
        Hostility::AuthRequired => {
            let status = status("TASK_STATE_AUTH_REQUIRED");
            result(json!({"task": {"id": "t", "status": status}})).into_response()
        }
        Hostility::NoTask => result(json!({"other": 1})).into_response(),
        Hostility::Rejected => result(json!({"task": rejected})).into_response(),
        Hostility::RejectedLater => result(working).into_response(),
        Hostility::Conflict => StatusCode::CONFLICT.into_response(),
    }
}

/// Returns a response that repeats `chunk` without an end.
fn endless(kind: &'static str, first: &str, chunk: String) -> Response {
    let first = stream::iter([Bytes::from(first.to_owned())]);
    let rest = stream::repeat(Bytes::from(chunk));
    let body = first.chain(rest).map(Ok::<_, std::io::Error>);
    ([(CONTENT_TYPE, kind)], Body::from_stream(body)).into_response()
}
