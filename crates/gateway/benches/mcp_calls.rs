//! The overhead of the gateway: a tool call of an MCP client through the gateway and the broker to a handler, compared
//! with a direct call of an MCP server and with a call of the same handler over the broker.
//!
//! The direct server is this program in another process; gateway, handler and clients are in this one. The three
//! paths alternate in one run, and the report contains the medians of the ratios per round. The call journal is in
//! memory.
//!
//! `cargo xtask bench gateway` provides the broker and runs it.

#![allow(missing_docs, unreachable_pub, reason = "a program")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed benchmark panics")]
#![allow(clippy::print_stdout, reason = "results are printed to standard output")]

use std::{net::SocketAddr, process::Stdio, sync::Arc, time::Duration};

use axum::http::{HeaderValue, header};
use futures_util::future::BoxFuture;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool as McpTool,
    },
    service::{RequestContext, RunningService},
    transport::{
        StreamableHttpClientTransport, StreamableHttpService,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use rockbot_bus::{Bus, Requester};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{
    AgentName, HandlerLoad, HandlerPool, InstanceId, SessionId, topology::tool_invoke,
};
use rockbot_gateway::{
    FaceName, Gateway, GatewayParts, GatewaySection, GatewayServer, Guard, McpFace, NamePatterns,
    Token, TokenFile,
};
use rockbot_mcp_server::McpServerSection;
use rockbot_store::{Clock, MemoryStore};
use rockbot_testkit::fixture::{fresh_namespace, reply_address, test_broker_url};
use rockbot_tool_rpc::{
    AnnouncedHandler, CallJournal, CatalogAnnouncer, InvokeOptions, JournalOptions, RemoteTool,
    ToolInvokeHandler, invoke::InvokeWorkers,
};
use rockbot_tools::{
    Tool, ToolContext, ToolExecutor, ToolFailure, ToolHints, ToolRegistration, ToolRegistry,
    ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::AsyncBufReadExt,
    net::TcpListener,
    process::{Child, Command},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
const CALLS: usize = 400;
const IN_FLIGHT: usize = 16;

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve().await,
        _ => compare().await,
    }
}

/// A server with one tool that returns its arguments.
#[derive(Clone)]
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![McpTool::new("echo", "Echoes", Arc::new(schema))]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = Value::Object(call.arguments.unwrap_or_default()).to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let service: StreamableHttpService<Echo, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Echo), Arc::default(), Default::default());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.expect("served");
}

/// A call over one of the paths.
type Call = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

async fn compare() {
    println!("{ROUNDS} rounds, {CALLS} calls each; medians of the ratios of rounds");
    println!(
        "| revision | p50 direct | p50 bus | p50 gateway | p50 ratio to the sum | calls/s direct | calls/s bus \
         | calls/s gateway | calls/s ratio to both in sequence |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let fleet = Fleet::start().await;
    let stateless =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for (revision, era) in
        [("2025-11-25", ClientLifecycleMode::Initialize), ("2026-07-28", stateless)]
    {
        fleet.measure(revision, era).await;
    }
    fleet.stop.cancel();
}

/// A handler, a gateway, and a server without a fleet.
struct Fleet {
    over_bus: Call,
    gateway: SocketAddr,
    token: String,
    direct: String,
    stop: CancellationToken,
    _server: Child,
    _handler: InvokeWorkers,
    _announcer: CatalogAnnouncer,
    _tokens: TempDir,
    _serving: JoinSet<()>,
}

impl Fleet {
    async fn start() -> Self {
        let (server, direct) = start_server().await;
        let namespace = fresh_namespace();
        let connect = async |name: &str| {
            let config = RabbitConfig::new(test_broker_url(), name).with_namespace(&namespace);
            let bus = RabbitBus::start(&config).expect("a URL");
            bus.connected(Duration::from_secs(20)).await.expect("the broker");
            Arc::new(bus) as Arc<dyn Bus>
        };
        let (handler, announcer) = start_handler(connect("handler").await).await;
        let requester = Requester::new(connect("caller").await, reply_address("bench", "one"));
        let remote = Arc::new(RemoteTool::new(registration(), Arc::new(requester), tool_invoke()));
        let over_bus: Call = Arc::new(move || {
            let remote = remote.clone();
            Box::pin(async move {
                remote.call(json!({"n": 1}), &context()).await.expect("a result");
            })
        });

        let tokens = tempfile::tempdir().expect("a folder");
        let file = tokens.path().join("tokens.toml");
        let (token, secret) = Token::generate("bench", [FaceName::Mcp].into()).expect("a token");
        let token = Token { tools: NamePatterns::all(), ..token };
        TokenFile { tokens: vec![token] }.write(&file).expect("written");
        let section = GatewaySection {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            faces: [FaceName::Mcp].into(),
            tokens: Some(file),
            ..GatewaySection::default()
        };
        let store = Arc::new(MemoryStore::new(Clock::System));
        let bus = connect("gateway").await;
        let parts = GatewayParts::connect(bus, Vec::new(), store, InstanceId::generate()).await;
        let mut parts = parts.expect("connected");
        parts.calls = Some(connect("calls").await);
        let (caller, limits) =
            (AgentName::new("cli").expect("a name"), McpServerSection::default());
        let mcp = McpFace::start(&parts, caller, limits, None).await.expect("discovered");
        let server_of_gateway = GatewayServer::bind(&section).await.expect("a port");
        let gateway = server_of_gateway.address();
        let guard = Guard::start(&section, gateway).expect("a guard");
        let faces = Gateway::new(&section, &parts, guard).with_mcp(mcp.expect("calls"));
        let stop = CancellationToken::new();
        let serving = server_of_gateway.serve(faces, stop.clone(), Duration::from_secs(5));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serving.await.expect("served") });
        Self {
            over_bus,
            gateway,
            token: secret,
            direct,
            stop,
            _server: server,
            _handler: handler,
            _announcer: announcer,
            _tokens: tokens,
            _serving: tasks,
        }
    }

    async fn measure(&self, revision: &str, era: ClientLifecycleMode) {
        let at_gateway = format!("http://{}/mcp", self.gateway);
        let direct = connect_client(&self.direct, "", era.clone()).await;
        let gateway = connect_client(&at_gateway, &self.token, era).await;
        let paths = [&call_of(&direct), &self.over_bus, &call_of(&gateway)];
        for path in paths {
            p50(path).await;
        }
        let (mut times, mut rates) = (Vec::new(), Vec::new());
        let (mut time_ratios, mut rate_ratios) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (mut round, mut round_rates) = (Vec::new(), Vec::new());
            for path in paths {
                round.push(p50(path).await.as_secs_f64() * 1e6);
            }
            for path in paths {
                round_rates.push(rate(path).await);
            }
            time_ratios.push(round[2] / (round[0] + round[1]));
            // Each path alone uses all cores.
            rate_ratios.push(round_rates[2] * (1.0 / round_rates[0] + 1.0 / round_rates[1]));
            times.push(round);
            rates.push(round_rates);
        }
        let middle =
            |of: &[Vec<f64>], at: usize| median(of.iter().map(|round| round[at]).collect());
        println!(
            "| {revision} | {:.0} µs | {:.0} µs | {:.0} µs | {:.3} | {:.0} | {:.0} | {:.0} | {:.3} |",
            middle(&times, 0),
            middle(&times, 1),
            middle(&times, 2),
            median(time_ratios),
            middle(&rates, 0),
            middle(&rates, 1),
            middle(&rates, 2),
            median(rate_ratios)
        );
    }
}

/// Starts the direct server and returns its URL.
async fn start_server() -> (Child, String) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg("serve").stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().expect("a server");
    let mut address = String::new();
    let stdout = server.stdout.take().expect("its output");
    tokio::io::BufReader::new(stdout).read_line(&mut address).await.expect("its address");
    (server, format!("http://{}/mcp", address.trim()))
}

async fn start_handler(bus: Arc<dyn Bus>) -> (InvokeWorkers, CatalogAnnouncer) {
    let registry = Arc::new(ToolRegistry::new());
    registry.register(Arc::new(PlainEcho(registration()))).expect("registered");
    let executor = Arc::new(ToolExecutor::new(registry.clone()));
    let instance = InstanceId::generate();
    let store = Arc::new(MemoryStore::new(Clock::System));
    let journal = CallJournal::start(store, &instance, JournalOptions::default());
    let options = InvokeOptions::new(64).with_journal(journal);
    let handler = ToolInvokeHandler::new(executor, bus.clone(), "bench", &instance, options);
    let workers = handler.start(&tool_invoke(), &instance).await.expect("consuming");
    let announced = AnnouncedHandler {
        service: "bench".to_owned(),
        instance,
        pool: HandlerPool::Unnamed,
        registry,
        load: Box::new(HandlerLoad::default),
        instructions: Box::new(Vec::new),
        guides: Vec::new(),
    };
    let announcer = CatalogAnnouncer::start(bus, announced).await.expect("announced");
    (workers, announcer)
}

fn registration() -> ToolRegistration {
    ToolRegistration {
        name: "echo".to_owned(),
        label: None,
        description: "Echoes".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

struct PlainEcho(ToolRegistration);

impl Tool for PlainEcho {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move { Ok(ToolResult::text(arguments.to_string())) })
    }
}

fn context() -> ToolContext {
    let agent = AgentName::new("bench").expect("a name");
    ToolContext::new("echo", SessionId::generate(), agent)
}

/// Connects a client that may call the tool.
async fn connect_client(
    url: &str,
    token: &str,
    era: ClientLifecycleMode,
) -> RunningService<RoleClient, ()> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    if !token.is_empty() {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
        config = config.custom_headers([(header::AUTHORIZATION, value)].into());
    }
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = ().serve_with_lifecycle(transport, era).await.expect("a session");
    // The gateway has discovered the tool by then.
    let tools = client.list_all_tools().await.expect("tools");
    assert!(tools.iter().any(|tool| tool.name == "echo"), "{tools:?}");
    client
}

fn call_of(client: &RunningService<RoleClient, ()>) -> Call {
    let peer = client.peer().clone();
    Arc::new(move || {
        let peer = peer.clone();
        Box::pin(async move {
            let arguments = json!({"n": 1}).as_object().cloned().unwrap_or_default();
            let call = CallToolRequestParams::new("echo").with_arguments(arguments);
            let result = peer.call_tool(call).await.expect("a result");
            assert_ne!(result.is_error, Some(true), "{result:?}");
        })
    })
}

async fn p50(call: &Call) -> Duration {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started_at = Instant::now();
        call().await;
        times.push(started_at.elapsed());
    }
    times.sort_unstable();
    times[CALLS / 2]
}

/// Returns the calls per second with [`IN_FLIGHT`] concurrent calls.
async fn rate(call: &Call) -> f64 {
    let started_at = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let call = call.clone();
        tasks.spawn(async move {
            for _ in 0..2 * CALLS / IN_FLIGHT {
                call().await;
            }
        });
    }
    tasks.join_all().await;
    (2 * CALLS) as f64 / started_at.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
