//! Fixture: a handler with a journal and large results, a fleet for MCP clients, and its clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientConfig, JsonObject, ProgressNotificationParam,
        ReadResourceRequestParams, ReadResourceResult,
    },
    service::{NotificationContext, Peer, RunningService},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use rockbot_contracts::{
    AgentName, HandlerLoad, HandlerPool, InstanceId, ToolGuide, topology::tool_invoke,
};
use rockbot_mcp_server::{
    Discovery, FleetParts, HttpOptions, McpClient, McpFleet, McpHttp, McpServerSection,
    serve_streams,
};
use rockbot_store::{Clock, MemoryStore};
use rockbot_testkit::fixture::{BusFixture, reply_address, within_timeout};
use rockbot_tool_rpc::{
    AnnouncedHandler, CallJournal, CatalogAnnouncer, InvokeOptions, JournalOptions,
    ToolInvokeHandler, invoke::InvokeWorkers, mcp::McpGateway,
};
use rockbot_tools::{
    Guides, LayerOptions, Outputs, OutputsSection, Tool, ToolContext, ToolExecutor, ToolFailure,
    ToolFilter, ToolHints, ToolOutput, ToolRegistration, ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

type Body =
    dyn Fn(Value, ToolContext) -> BoxFuture<'static, Result<ToolResult, ToolFailure>> + Send + Sync;

/// A tool that runs a closure.
struct ClosureTool {
    registration: ToolRegistration,
    body: Box<Body>,
}

impl Tool for ClosureTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        (self.body)(arguments, context.clone())
    }
}

pub(crate) fn registration(name: &str, hints: ToolHints) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: format!("test tool {name}"),
        tool_description: None,
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}},
            "additionalProperties": false}),
        source: ToolSource::Files,
        hints,
        timeout_ms: None,
    }
}

pub(crate) fn tool<F>(
    registration: ToolRegistration,
    body: impl Fn(Value, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = Result<ToolResult, ToolFailure>> + Send + 'static,
{
    let body = Box::new(move |arguments, context| {
        let future: BoxFuture<'static, _> = Box::pin(body(arguments, context));
        future
    });
    Arc::new(ClosureTool { registration, body })
}

/// Events of the calls of the tools `count`, `hang`, `wait` and `chatty`.
#[derive(Default)]
pub(crate) struct ToolEvents {
    /// Runs of `count` and `wait`.
    pub(crate) runs: AtomicU32,
    /// Number of running calls of `hang` and `wait`.
    pub(crate) running: watch::Sender<u32>,
    /// Set to let `wait` and `chatty` return.
    pub(crate) released: watch::Sender<bool>,
}

struct Running(Arc<ToolEvents>);

impl Running {
    fn new(events: &Arc<ToolEvents>) -> Self {
        events.running.send_modify(|running| *running += 1);
        Self(events.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl ToolEvents {
    /// Waits until this many calls run.
    pub(crate) async fn running(&self, number: u32) {
        let mut running = self.running.subscribe();
        within_timeout("running calls", running.wait_for(|running| *running == number))
            .await
            .unwrap();
    }
}

fn tools(events: &Arc<ToolEvents>) -> Vec<Arc<dyn Tool>> {
    let writes = ToolHints::default();
    let (counting, hanging, waiting) = (events.clone(), events.clone(), events.clone());
    let (talking, releasing) = (events.clone(), events.clone());
    vec![
        tool(registration("echo", ToolHints::READ_ONLY), async |arguments: Value, _| {
            Ok(ToolResult::text(arguments["text"].as_str().unwrap_or_default()))
        }),
        tool(registration("count", writes), move |_, _| {
            let runs = counting.runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(ToolResult::text(runs.to_string())) }
        }),
        tool(registration("fail", writes), async |_, _| {
            Err(ToolFailure::failed_with_source(
                "the disk is full",
                "/dev/sda1 on host db-7 is full",
            ))
        }),
        tool(registration("sad", writes), async |_, _| Ok(ToolResult::error("exit code 1"))),
        tool(registration("hang", writes), move |_, _| {
            let running = Running::new(&hanging);
            async move {
                let _running = running;
                std::future::pending().await
            }
        }),
        tool(registration("wait", writes), move |_, _| {
            let running = Running::new(&waiting);
            let events = waiting.clone();
            async move {
                let _running = running;
                let runs = events.runs.fetch_add(1, Ordering::SeqCst) + 1;
                let mut released = events.released.subscribe();
                let _ = released.wait_for(|released| *released).await;
                Ok(ToolResult::text(runs.to_string()))
            }
        }),
        tool(registration("chatty", writes), move |_, context: ToolContext| {
            let mut released = talking.released.subscribe();
            async move {
                for number in 1..=3 {
                    context.progress(format!("step {number}"));
                }
                // Progress that arrives after the result is dropped.
                let _ = released.wait_for(|released| *released).await;
                Ok(ToolResult::text("whole").with_details(json!({"steps": 3})))
            }
        }),
        tool(registration("release", writes), move |_, _| {
            releasing.released.send_replace(true);
            async { Ok(ToolResult::text("released")) }
        }),
        tool(registration("huge", ToolHints::READ_ONLY), async |_, _| {
            let lines = (0..50_000).map(|number| format!("line {number} ü\n"));
            Ok(ToolResult::text(lines.collect::<String>()))
        }),
    ]
}

/// A bus with a handler.
pub(crate) struct Handler {
    pub(crate) bus: BusFixture,
    pub(crate) events: Arc<ToolEvents>,
    /// The tools of the handler.
    pub(crate) registry: Arc<ToolRegistry>,
    _handler: Arc<ToolInvokeHandler>,
    _workers: InvokeWorkers,
    _announcer: CatalogAnnouncer,
}

impl Handler {
    pub(crate) async fn start() -> Self {
        let bus = BusFixture::memory();
        let events = Arc::new(ToolEvents::default());
        let registry = Arc::new(ToolRegistry::new());
        let store = Arc::new(MemoryStore::new(Clock::System));
        let outputs = OutputsSection { handle_mode: true, ..OutputsSection::default() };
        let outputs = Outputs::new(store.clone(), outputs);
        for tool in tools(&events) {
            registry.register(tool).unwrap();
        }
        registry.register(Arc::new(ToolOutput::new(outputs.clone()))).unwrap();
        let instance = InstanceId::generate();
        let journal = CallJournal::start(
            store,
            &instance,
            JournalOptions { shared: true, ..JournalOptions::default() },
        );
        let options = InvokeOptions::new(16).with_journal(journal);
        let layers = LayerOptions { outputs: Some(outputs), ..LayerOptions::default() };
        let executor = Arc::new(ToolExecutor::with_layers(registry.clone(), layers));
        let handler =
            ToolInvokeHandler::new(executor, bus.remote.clone(), "handler", &instance, options);
        let workers = handler.start(&tool_invoke(), &instance).await.unwrap();
        let guide = ToolGuide {
            source: ToolSource::Files,
            name: "files-guide".to_owned(),
            summary: "files".to_owned(),
            markdown: "# Files".to_owned(),
        };
        let announced = AnnouncedHandler {
            service: "handler".to_owned(),
            instance,
            pool: HandlerPool::Unnamed,
            registry: registry.clone(),
            load: Box::new(HandlerLoad::default),
            instructions: Box::new(Vec::new),
            guides: vec![guide],
            script_isolation: None,
        };
        let announcer = CatalogAnnouncer::start(bus.remote.clone(), announced).await.unwrap();
        Self { bus, events, registry, _handler: handler, _workers: workers, _announcer: announcer }
    }

    /// Starts a process that serves MCP clients.
    pub(crate) async fn fleet(&self) -> Fleet {
        self.fleet_with(McpServerSection::default(), None).await
    }

    pub(crate) async fn fleet_with(
        &self,
        section: McpServerSection,
        servers: Option<Arc<dyn McpGateway>>,
    ) -> Fleet {
        let instance = InstanceId::generate();
        let address = reply_address("gateway", instance.as_str());
        let discovery = Discovery::start(self.bus.local.clone(), address).await.unwrap();
        within_timeout("a handler", discovery.directory.wait_for_any(Duration::from_secs(60)))
            .await;
        let guides = Guides::new([rockbot_tools::Guide {
            name: "test-guide",
            summary: "about tests",
            markdown: "# Tests",
        }]);
        let parts = FleetParts {
            caller: AgentName::new("gateway").unwrap(),
            registry: discovery.registry.clone(),
            servers,
            agents: Vec::new(),
            guides,
            layers: LayerOptions::default(),
            announced: Box::pin(std::future::ready(())),
            section,
        };
        Fleet { fleet: McpFleet::start(parts), _discovery: discovery }
    }
}

/// A process that serves MCP clients.
pub(crate) struct Fleet {
    pub(crate) fleet: Arc<McpFleet>,
    _discovery: Discovery,
}

pub(crate) fn filter(deny: &[&str]) -> ToolFilter {
    let deny = deny.iter().map(|&pattern| pattern.to_owned()).collect();
    ToolFilter { deny, ..ToolFilter::default() }
}

pub(crate) fn client(name: &str) -> McpClient {
    McpClient::new(name, ToolFilter::default()).unwrap()
}

/// Revisions of the protocol with their way to begin.
pub(crate) fn eras() -> [ClientLifecycleMode; 2] {
    [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover {
            preferred_versions: vec![rmcp::model::ProtocolVersion::V_2026_07_28],
        },
    ]
}

impl Fleet {
    /// Connects a client over a pair of streams.
    pub(crate) async fn connect(&self, client: McpClient, era: ClientLifecycleMode) -> Session {
        let (own, server) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(server);
        let stop = CancellationToken::new();
        let served = serve_streams(self.fleet.clone(), client, read, write, stop, Duration::ZERO);
        tokio::spawn(served);
        Session::open(own, era).await
    }

    /// Connects the client `desktop` in both eras, each over a pair of streams and over HTTP.
    pub(crate) async fn connect_all(&self, http: &Http) -> Vec<Session> {
        let mut sessions = Vec::new();
        for era in eras() {
            sessions.push(self.connect(client("desktop"), era.clone()).await);
            sessions.push(http.connect("desktop", era).await);
        }
        sessions
    }

    /// Serves HTTP on loopback, where the header `x-client` names the client.
    pub(crate) async fn http(&self, options: HttpOptions) -> Http {
        let http = McpHttp::new(self.fleet.clone(), options);
        let router = http.router().layer(axum::middleware::from_fn(authenticate));
        Self::listen(http, router).await
    }

    /// Serves HTTP on loopback to one client. Other host names and web origins are refused.
    pub(crate) async fn http_for(&self, client: McpClient) -> Http {
        let options = HttpOptions {
            allowed_hosts: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
            allowed_origins: Some(vec![
                "http://127.0.0.1:*".to_owned(),
                "http://localhost:*".to_owned(),
            ]),
            ..HttpOptions::default()
        };
        let http = McpHttp::new(self.fleet.clone(), options);
        let router = http.router().layer(axum::Extension(client));
        Self::listen(http, router).await
    }

    async fn listen(http: Arc<McpHttp>, router: axum::Router) -> Http {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Http { url, _server: http }
    }
}

/// Stands in for the guard in front: trusts the name in a header.
async fn authenticate(
    mut request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    let name = request.headers().get("x-client").and_then(|name| name.to_str().ok());
    if let Some(client) = name.map(client) {
        request.extensions_mut().insert(client);
    }
    next.run(request).await
}

/// A server over HTTP.
pub(crate) struct Http {
    pub(crate) url: String,
    _server: Arc<McpHttp>,
}

impl Http {
    /// Connects a client over HTTP.
    pub(crate) async fn connect(&self, name: &str, era: ClientLifecycleMode) -> Session {
        let header = axum::http::HeaderValue::from_str(name).unwrap();
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.clone())
            .custom_headers([(axum::http::HeaderName::from_static("x-client"), header)].into());
        rockbot_service::tls::install_tls_provider();
        Session::open(StreamableHttpClientTransport::from_config(config), era).await
    }
}

/// Notifications that a client received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notified {
    Progress(String),
    Tools,
    Prompts,
}

struct Notifications(mpsc::Sender<Notified>);

impl Notifications {
    fn add(&self, notified: Notified) {
        let _ = self.0.try_send(notified);
    }
}

impl ClientHandler for Notifications {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.add(Notified::Progress(params.message.unwrap_or_default()));
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.add(Notified::Tools);
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.add(Notified::Prompts);
    }
}

/// A connected client.
pub(crate) struct Session {
    client: RunningService<RoleClient, Notifications>,
    notified: mpsc::Receiver<Notified>,
}

impl Session {
    async fn open<T, E, A>(transport: T, era: ClientLifecycleMode) -> Self
    where
        T: rmcp::transport::IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (sender, notified) = mpsc::channel(64);
        let client = Notifications(sender).serve_with_lifecycle(transport, era);
        let client = within_timeout("the session", client).await.unwrap();
        Self { client, notified }
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.client.peer()
    }

    pub(crate) async fn notified(&mut self) -> Notified {
        within_timeout("a notification", self.notified.recv()).await.unwrap()
    }

    pub(crate) async fn tool_names(&self) -> Vec<String> {
        let tools = within_timeout("tools", self.client.list_all_tools()).await.unwrap();
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let called = self.client.call_tool(request(tool, arguments));
        within_timeout("the result", called).await.unwrap()
    }

    pub(crate) async fn read(&self, uri: &str) -> ReadResourceResult {
        let read = self.client.read_resource(ReadResourceRequestParams::new(uri));
        within_timeout("the resource", read).await.unwrap()
    }
}

pub(crate) fn request(tool: &str, arguments: Value) -> CallToolRequestParams {
    let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

pub(crate) fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// Returns a field of the structured error.
pub(crate) fn error<'a>(result: &'a CallToolResult, field: &str) -> &'a Value {
    assert_eq!(result.is_error, Some(true));
    &result.structured_content.as_ref().unwrap()["error"][field]
}
