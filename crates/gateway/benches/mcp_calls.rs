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

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::http::{HeaderValue, header};
use futures_util::future::BoxFuture;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{CallToolRequestParams, ProtocolVersion},
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
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
use rockbot_testkit::{
    McpEcho,
    fixture::{fresh_namespace, reply_address, test_broker_url},
    measured_calls::{CALLS, MeasuredCall, median, p50, rate},
};
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
use tokio::{process::Child, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
/// The argument with which this program is the direct server.
const SERVE: &str = "serve";

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match std::env::args().nth(1).as_deref() {
        Some(SERVE) => McpEcho::serve_http().await,
        _ => compare().await,
    }
}

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
    over_bus: MeasuredCall,
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
        let (server, direct) = McpEcho::spawn_http(SERVE).await;
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
        let over_bus: MeasuredCall = Arc::new(move || {
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
        script_isolation: None,
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

fn call_of(client: &RunningService<RoleClient, ()>) -> MeasuredCall {
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
