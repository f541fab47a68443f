//! An agent with a test model on the in-memory bus, and gateways in front of it.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use rockbot_agent::{
    Agent, AgentDefinition, AgentInbox, AgentParts, Approvals, ConversationOptions,
    ConversationService, ConversationServiceBuilder, Conversations, Delegation, DelegationOptions,
    serve,
};
use rockbot_bus::{Bus, MemoryBus};
use rockbot_contracts::{AgentName, InstanceId};
use rockbot_gateway::{
    A2aParts, FaceName, Gateway, GatewayParts, GatewaySection, GatewayServer, Guard, McpFace,
    NamePatterns, Right, Token, TokenFile, ToolCalls,
};
use rockbot_llm::{
    ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, FinishReason, Usage,
};
use rockbot_mcp_server::McpServerSection;
use rockbot_store::{Clock, MemoryStore, Store, Stores};
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::{
    ApprovalSection, Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolRegistry,
    ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Answers a message with "You said TEXT." in two parts. A message with the word "wait" gets the second part
/// after a permit of `gate`.
pub(crate) struct EchoModel {
    pub(crate) requests: Mutex<Vec<ChatRequest>>,
    pub(crate) gate: Arc<Semaphore>,
    /// Gets a permit for each response that was dropped before its end.
    dropped: Arc<Semaphore>,
    /// Events of the next responses, instead of the echo.
    next: Mutex<Vec<Result<Vec<ChatEvent>, ChatError>>>,
}

impl Default for EchoModel {
    fn default() -> Self {
        let (gate, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        Self { requests: Mutex::default(), gate, dropped, next: Mutex::default() }
    }
}

impl EchoModel {
    /// Returns the texts of users in the last request.
    pub(crate) fn last_user_texts(&self) -> Vec<String> {
        let requests = self.requests.lock();
        user_texts(requests.last().expect("a request"))
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().len()
    }

    /// Makes the next response this text.
    pub(crate) fn answer_next(&self, text: &str, usage: Usage) {
        self.respond_next(vec![
            ChatEvent::Text(text.to_owned()),
            ChatEvent::Usage(usage),
            ChatEvent::Finished(FinishReason::Stop),
        ]);
    }

    /// Makes the next request fail.
    pub(crate) fn fail_next(&self) {
        let (message, hint) = ("bad key".to_owned(), "set another".to_owned());
        self.next.lock().push(Err(ChatError::Unauthorized { status: 401, message, hint }));
    }

    pub(crate) fn respond_next(&self, events: Vec<ChatEvent>) {
        self.next.lock().push(Ok(events));
    }

    /// Waits until a response was dropped before its end.
    pub(crate) async fn until_dropped(&self) {
        within_timeout("a cancel", self.dropped.acquire()).await.unwrap().forget();
    }
}

fn user_texts(request: &ChatRequest) -> Vec<String> {
    let texts = request.messages.iter().filter_map(|message| match message {
        ChatMessage::User(text) => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

/// Adds a permit when a response is dropped before its end.
struct DropProbe(Arc<Semaphore>, bool);

impl Drop for DropProbe {
    fn drop(&mut self) {
        if !self.1 {
            self.0.add_permits(1);
        }
    }
}

impl ChatModel for EchoModel {
    fn name(&self) -> &str {
        "echo"
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let text = user_texts(&request).pop().unwrap_or_default();
        self.requests.lock().push(request);
        let mut next = self.next.lock();
        let canned = if next.is_empty() { None } else { Some(next.remove(0)) };
        drop(next);
        let (gate, probe) = (self.gate.clone(), DropProbe(self.dropped.clone(), false));
        async move {
            if let Some(canned) = canned {
                return Ok(stream::iter(canned?.into_iter().map(Ok)).boxed());
            }
            let waits = text.contains("wait");
            let first = stream::iter([Ok(ChatEvent::Text("You said ".to_owned()))]);
            let rest = stream::once(async move {
                let mut probe = probe;
                if waits {
                    gate.acquire().await.unwrap().forget();
                }
                probe.1 = true;
                Ok(ChatEvent::Text(format!("{text}.")))
            });
            let end = stream::iter([Ok(ChatEvent::Finished(FinishReason::Stop))]);
            Ok(first.chain(rest).chain(end).boxed())
        }
        .boxed()
    }
}

/// A tool that returns a text, and whose definition was announced.
struct FixedTool {
    registration: ToolRegistration,
    result: &'static str,
}

impl Tool for FixedTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        _arguments: Value,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        async move { Ok(ToolResult::text(self.result)) }.boxed()
    }

    fn is_announced(&self) -> bool {
        true
    }
}

/// A tool that asks the user for a color, as a call of an MCP server may, and returns the response.
struct AskingTool(ToolRegistration);

impl Tool for AskingTool {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let request = json!({"server": "paint", "message": "Which color?", "mode": "form",
            "fields": [{"name": "color", "required": true, "type": "choice",
                "options": [{"value": "red"}, {"value": "green"}]}]});
        let request = serde_json::from_value(request).unwrap();
        async move {
            let Some(user) = &context.input else { return Ok(ToolResult::text("no user")) };
            let response = user.ask(request, Duration::from_secs(60)).await;
            Ok(ToolResult::text(json!(response).to_string()))
        }
        .boxed()
    }
}

/// An agent named `assistant` on a bus.
pub(crate) struct Fleet {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) model: Arc<EchoModel>,
    _inbox: AgentInbox,
    _conversations: ConversationService,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        Self::with(Arc::default(), None).await
    }

    /// Starts a fleet whose calls need approval, and whose model first calls a tool, which returns `result`.
    pub(crate) async fn asking(tool: &str, arguments: &str, result: &'static str) -> Self {
        let registry = Arc::new(ToolRegistry::new());
        let tool = FixedTool { registration: registration(tool), result };
        let name = tool.registration.name.clone();
        registry.register(Arc::new(tool)).unwrap();
        let section = toml::from_str("policy = \"ask\"").unwrap();
        let fleet = Self::with(registry, Approvals::new(section)).await;
        fleet.call_next(&name, arguments);
        fleet
    }

    /// Starts a fleet whose model first calls a tool that asks the user for a color.
    pub(crate) async fn asking_for_input() -> Self {
        let registry = Arc::new(ToolRegistry::new());
        registry.register(Arc::new(AskingTool(registration("paint")))).unwrap();
        let fleet =
            Self::with(registry, Some(Approvals::with_input(ApprovalSection::default()))).await;
        fleet.call_next("paint", "{}");
        fleet
    }

    /// Starts a fleet whose agent can start sub-agents.
    pub(crate) async fn delegating() -> Self {
        let registry = Arc::new(ToolRegistry::new());
        let delegation = Delegation::new(DelegationOptions::default());
        for tool in delegation.tools() {
            registry.register(tool).unwrap();
        }
        let Stores { store, log } = Stores::memory(Clock::System);
        let options = ConversationOptions::default();
        let conversations = Conversations::new(log, store, assistant(), options);
        let delegation = Some(delegation);
        Self::serving(registry, |parts| AgentParts { conversations, delegation, ..parts }).await
    }

    /// Makes the next response of the model a call.
    pub(crate) fn call_next(&self, tool: &str, arguments: &str) {
        let call = ChatEvent::ToolCallDelta {
            index: Some(0),
            id: Some("call-1".to_owned()),
            name: Some(tool.to_owned()),
            arguments: arguments.to_owned(),
        };
        self.model.respond_next(vec![call, ChatEvent::Finished(FinishReason::ToolCalls)]);
    }

    async fn with(registry: Arc<ToolRegistry>, approvals: Option<Arc<Approvals>>) -> Self {
        Self::serving(registry, |parts| AgentParts { approvals, ..parts }).await
    }

    async fn serving(
        registry: Arc<ToolRegistry>,
        change: impl FnOnce(AgentParts) -> AgentParts,
    ) -> Self {
        let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
        let model = Arc::new(EchoModel::default());
        let definition = AgentDefinition::new(assistant(), "Be brief.");
        let parts = AgentParts::new(definition, model.clone(), registry);
        let agent = Agent::new(change(parts));
        let conversations = ConversationServiceBuilder::for_agent(agent.clone());
        let conversations = conversations.serve(bus.clone()).await.unwrap();
        let inbox = serve(agent, bus.clone(), 1024).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::System));
        Self { bus, store, model, _inbox: inbox, _conversations: conversations }
    }

    pub(crate) async fn gateway(&self) -> TestGateway {
        self.gateway_with("").await
    }

    /// Starts a gateway with further keys of its section.
    pub(crate) async fn gateway_with(&self, keys: &str) -> TestGateway {
        TestGateway::start(self, keys, |_| {}).await
    }

    /// Starts a gateway with further keys of its section and changed parts.
    pub(crate) async fn gateway_changed(
        &self,
        keys: &str,
        change: impl FnOnce(&mut GatewayParts),
    ) -> TestGateway {
        TestGateway::start(self, keys, change).await
    }
}

pub(crate) fn registration(tool: &str) -> ToolRegistration {
    ToolRegistration {
        name: tool.to_owned(),
        label: None,
        description: format!("test tool {tool}"),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

/// Starts the face for MCP clients.
pub(crate) async fn mcp_face(parts: &GatewayParts) -> McpFace {
    let caller = AgentName::new("cli").unwrap();
    let face = McpFace::start(parts, caller, McpServerSection::default(), None).await;
    face.unwrap().expect("a connection for calls")
}

fn assistant() -> AgentName {
    AgentName::new("assistant").unwrap()
}

/// A gateway that listens on a free port, and the tokens of its programs.
pub(crate) struct TestGateway {
    pub(crate) address: SocketAddr,
    pub(crate) guard: Arc<Guard>,
    pub(crate) tokens: TempDir,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

static GATEWAYS: AtomicUsize = AtomicUsize::new(0);

impl TestGateway {
    async fn start(fleet: &Fleet, keys: &str, change: impl FnOnce(&mut GatewayParts)) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        TokenFile::default().write(&tokens.path().join("tokens.toml")).unwrap();
        let file = tokens.path().join("tokens.toml");
        let text = format!(
            "address = \"127.0.0.1:0\"\nfaces = [\"console\", \"mcp\", \"openai\", \"a2a\"]\n\
             agents = [\"assistant\", \"absent\"]\ntokens = {file:?}\n{keys}"
        );
        let section: GatewaySection = toml::from_str(&text).unwrap();
        assert!(section.validate(false).is_empty(), "{:?}", section.validate(false));
        let number = GATEWAYS.fetch_add(1, Ordering::Relaxed);
        let instance = InstanceId::new(format!("gateway-{number}")).unwrap();
        let (bus, store, agents) = (fleet.bus.clone(), fleet.store.clone(), section.agents.clone());
        let mut parts = GatewayParts::connect(bus, agents, store, instance).await.unwrap();
        parts.calls = Some(parts.bus.clone());
        parts.a2a = A2aParts::load(&section.a2a).unwrap();
        change(&mut parts);
        if section.call_tools {
            let caller = AgentName::new("cli").unwrap();
            let limits = McpServerSection::default();
            let calls = ToolCalls::start(parts.bus.clone(), caller, limits).await;
            parts.tool_calls = Some(Arc::new(calls.unwrap()));
        }
        let mcp = mcp_face(&parts).await;
        let server = GatewayServer::bind(&section).await.unwrap();
        let address = server.address();
        let guard = Guard::start(&section, address).unwrap();
        let gateway = Gateway::new(&section, &parts, guard.clone()).with_mcp(mcp);
        let stop = CancellationToken::new();
        let serving = server.serve(gateway, stop.clone(), Duration::from_secs(5));
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        Self { address, guard, tokens, stop, serving }
    }

    /// Ends the process of the gateway in the middle of everything.
    pub(crate) fn kill(self) {
        self.serving.abort();
    }

    /// Stops the gateway in an orderly way.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.serving).await.unwrap();
    }

    /// Adds a token for all agents and tools.
    pub(crate) async fn token(&self, name: &str, face: FaceName, rights: &[Right]) -> String {
        let rights = rights.iter().copied().collect();
        self.token_with(name, face, |token| Token { rights, ..token }).await
    }

    /// Adds a token and waits until the gateway has read it.
    pub(crate) async fn token_with(
        &self,
        name: &str,
        face: FaceName,
        change: impl FnOnce(Token) -> Token,
    ) -> String {
        let path = self.tokens.path().join("tokens.toml");
        let mut file = TokenFile::read(&path).unwrap();
        let (token, secret) = Token::generate(name, BTreeSet::from([face])).unwrap();
        let token = Token { agents: NamePatterns::all(), tools: NamePatterns::all(), ..token };
        file.add(change(token)).unwrap();
        file.write(&path).unwrap();
        self.await_token(&secret, true).await;
        secret
    }

    /// Revokes a token and waits until the gateway has read it.
    pub(crate) async fn revoke(&self, name: &str, secret: &str) {
        let path = self.tokens.path().join("tokens.toml");
        let mut file = TokenFile::read(&path).unwrap();
        assert!(file.revoke(name));
        file.write(&path).unwrap();
        self.await_token(secret, false).await;
    }

    async fn await_token(&self, secret: &str, is_valid: bool) {
        let request = crate::http::Request::get("/v1/models").token(secret);
        within_timeout("the tokens are read", async {
            while (request.send(self.address).await.status != 401) != is_valid {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Adds a token for the OpenAI API.
    pub(crate) async fn openai_token(&self) -> String {
        self.token("program", FaceName::Openai, &[Right::Talk]).await
    }

    /// Uses a login link and returns the cookie.
    pub(crate) async fn log_in(&self) -> String {
        let link = self.guard.login_link().unwrap().unwrap();
        let (_, code) = link.split_once("#login=").unwrap();
        let response = self.redeem(code).await;
        assert_eq!(response.status, 204, "{response:?}");
        let link = self.guard.login_link().unwrap().unwrap();
        assert!(link.starts_with(&format!("http://{}/#login=", self.address)), "{link}");
        let cookie = response.header("set-cookie").unwrap().to_owned();
        cookie.split_once(';').unwrap().0.to_owned()
    }

    pub(crate) async fn redeem(&self, code: &str) -> crate::http::Response {
        let login = json!({"code": code});
        let request = crate::http::Request::post("/api/v1/session", &login);
        request.header("origin", &format!("http://{}", self.address)).send(self.address).await
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
