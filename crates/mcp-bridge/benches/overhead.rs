//! The overhead of the bridge: a call through a bridge, compared with a direct call of the same MCP
//! server and with a call of a plain tool over the same bus.
//!
//! The server is this program in another process, over standard input and output or over HTTP. The
//! three paths alternate in one run, and the report contains the medians of the ratios per round. The
//! call journal is in memory on both paths over the bus.
//!
//! `cargo xtask bench mcp` provides the broker and runs it.

#![allow(missing_docs, unreachable_pub, reason = "a program")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed benchmark panics")]
#![allow(clippy::print_stdout, reason = "results are printed to standard output")]

use std::{os::fd::AsFd, process::Stdio, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rmcp::{
    RoleClient, ServiceExt,
    model::CallToolRequestParams,
    service::{Peer, RunningService},
    transport::StreamableHttpClientTransport,
};
use rockbot_bus::{Bus, MemoryBus, Requester};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{AgentName, InstanceId, SessionId, topology::tool_invoke};
use rockbot_mcp_bridge::{
    Bridge, BridgeOptions, BridgeService, ServersFile, transport::DialPolicy,
};
use rockbot_store::{Clock, MemoryStore};
use rockbot_testkit::{
    McpEcho,
    fixture::{fresh_namespace, reply_address, test_broker_url},
    measured_calls::{CALLS, MeasuredCall, median, p50, rate},
};
use rockbot_tool_rpc::{
    CallJournal, InvokeOptions, JournalOptions, RemoteTool, ToolInvokeHandler,
    mcp::{BusGateway, McpGateway},
};
use rockbot_tools::{
    Tool, ToolContext, ToolExecutor, ToolFailure, ToolHints, ToolRegistration, ToolRegistry,
    ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tokio::{net::unix::pipe, process::Command};

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
/// The argument with which this program is the server over HTTP.
const SERVE_HTTP: &str = "serve-http";

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match std::env::args().nth(1).as_deref() {
        Some("serve-stdio") => {
            let input = std::io::stdin().as_fd().try_clone_to_owned().expect("a pipe");
            let output = std::io::stdout().as_fd().try_clone_to_owned().expect("a pipe");
            let input = pipe::Receiver::from_owned_fd(input).expect("a pipe");
            let output = pipe::Sender::from_owned_fd(output).expect("a pipe");
            let serving = McpEcho.serve((input, output)).await;
            let _ = serving.expect("a session").waiting().await;
        }
        Some(SERVE_HTTP) => McpEcho::serve_http().await,
        _ => compare().await,
    }
}

async fn compare() {
    println!("{ROUNDS} rounds, {CALLS} calls each; medians of the ratios of rounds");
    println!(
        "| bus | server | p50 direct | p50 bus | p50 bridge | p50 ratio | calls/s ratio to the slower \
         | calls/s ratio to both in sequence |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for bus in ["memory", "rabbitmq"] {
        for kind in ["stdio", "http"] {
            let fixture = Fixture::start(bus, kind).await;
            fixture.measure(bus, kind).await;
            fixture.stop().await;
        }
    }
}

/// The three paths, and the processes behind them.
struct Fixture {
    direct: MeasuredCall,
    bus: MeasuredCall,
    bridge: MeasuredCall,
    service: BridgeService,
    _session: RunningService<RoleClient, ()>,
    _server: Option<tokio::process::Child>,
    _handler: rockbot_tool_rpc::invoke::InvokeWorkers,
}

impl Fixture {
    async fn start(bus: &str, kind: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let (server, url) = match kind {
            "http" => {
                let (server, url) = McpEcho::spawn_http(SERVE_HTTP).await;
                (Some(server), url)
            }
            _ => (None, String::new()),
        };
        let (session, child) = open_session(kind, &program, &url).await;
        let peer = session.peer().clone();
        let direct: MeasuredCall = Arc::new(move || {
            let peer = peer.clone();
            Box::pin(async move { call_directly(&peer).await })
        });

        let (caller_bus, handler_bus) = buses(bus).await;
        let requester = Arc::new(Requester::new(caller_bus, reply_address("bench", "one")));
        let handler = plain_handler(&handler_bus).await;
        let remote = Arc::new(RemoteTool::new(registration(), requester.clone(), tool_invoke()));
        let over_bus: MeasuredCall = Arc::new(move || {
            let remote = remote.clone();
            Box::pin(async move {
                remote.call(json!({"n": 1}), &context()).await.expect("a result");
            })
        });

        let entry = match kind {
            "http" => json!({"url": url}),
            _ => json!({"command": program, "args": ["serve-stdio"]}),
        };
        let (service, gateway) = start_bridge(&handler_bus, requester, entry).await;
        let bridge: MeasuredCall = Arc::new(move || {
            let gateway = gateway.clone();
            Box::pin(async move {
                let result = gateway.call("server", "echo", json!({"n": 1}), &context()).await;
                assert!(!result.expect("a result").is_error);
            })
        });
        let _server = server.or(child);
        Self {
            direct,
            bus: over_bus,
            bridge,
            service,
            _session: session,
            _server,
            _handler: handler,
        }
    }

    async fn measure(&self, bus: &str, kind: &str) {
        let paths = [&self.direct, &self.bus, &self.bridge];
        for path in paths {
            p50(path).await;
        }
        let (mut times, mut time_ratios) = (Vec::new(), Vec::new());
        let (mut rate_ratios, mut sequence_ratios) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut round = Vec::new();
            let mut rates = Vec::new();
            for path in paths {
                round.push(p50(path).await.as_secs_f64() * 1e6);
            }
            for path in paths {
                rates.push(rate(path).await);
            }
            time_ratios.push(round[2] / (round[0] + round[1]));
            rate_ratios.push(rates[2] / rates[0].min(rates[1]));
            // Relative to the rate of both in sequence: each path alone uses all cores.
            sequence_ratios.push(rates[2] * (1.0 / rates[0] + 1.0 / rates[1]));
            times.push(round);
        }
        let time = |at: usize| median(times.iter().map(|round| round[at]).collect());
        println!(
            "| {bus} | {kind} | {:.0} µs | {:.0} µs | {:.0} µs | {:.3} | {:.3} | {:.3} |",
            time(0),
            time(1),
            time(2),
            median(time_ratios),
            median(rate_ratios),
            median(sequence_ratios)
        );
    }

    async fn stop(self) {
        self.service.drain(Duration::from_secs(2)).await;
    }
}

fn context() -> ToolContext {
    let agent = AgentName::new("bench").expect("a name");
    ToolContext::new("echo", SessionId::generate(), agent)
}

async fn open_session(
    kind: &str,
    program: &std::path::Path,
    url: &str,
) -> (RunningService<RoleClient, ()>, Option<tokio::process::Child>) {
    if kind == "http" {
        let transport = StreamableHttpClientTransport::from_uri(url.to_owned());
        return (().serve(transport).await.expect("a session"), None);
    }
    let mut child = Command::new(program)
        .arg("serve-stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a server");
    let pipes = (child.stdout.take().expect("output"), child.stdin.take().expect("input"));
    (().serve(pipes).await.expect("a session"), Some(child))
}

async fn call_directly(peer: &Peer<RoleClient>) {
    let arguments = json!({"n": 1}).as_object().cloned().unwrap_or_default();
    let call = CallToolRequestParams::new("echo").with_arguments(arguments);
    peer.call_tool_once(call).await.expect("a result");
}

async fn buses(kind: &str) -> (Arc<dyn Bus>, Arc<dyn Bus>) {
    if kind == "memory" {
        let bus = MemoryBus::new();
        return (Arc::new(bus.clone()), Arc::new(bus));
    }
    let namespace = fresh_namespace();
    let connect = async |name: &str| {
        let config = RabbitConfig::new(test_broker_url(), name).with_namespace(&namespace);
        let bus = RabbitBus::start(&config).expect("a URL");
        bus.connected(Duration::from_secs(20)).await.expect("the broker");
        Arc::new(bus) as Arc<dyn Bus>
    };
    (connect("caller").await, connect("handler").await)
}

fn options(instance: &InstanceId) -> InvokeOptions {
    let store = Arc::new(MemoryStore::new(Clock::System));
    let journal = CallJournal::start(store, instance, JournalOptions::default());
    InvokeOptions::new(64).with_journal(journal)
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

async fn plain_handler(bus: &Arc<dyn Bus>) -> rockbot_tool_rpc::invoke::InvokeWorkers {
    let registry = Arc::new(ToolRegistry::new());
    registry.register(Arc::new(PlainEcho(registration()))).expect("registered");
    let executor = Arc::new(ToolExecutor::new(registry));
    let instance = InstanceId::generate();
    let handler =
        ToolInvokeHandler::new(executor, bus.clone(), "bench", &instance, options(&instance));
    handler.start(&tool_invoke(), &instance).await.expect("consuming")
}

async fn start_bridge(
    bus: &Arc<dyn Bus>,
    requester: Arc<Requester>,
    entry: Value,
) -> (BridgeService, Arc<dyn McpGateway>) {
    let allow_private = vec!["127.0.0.0/8".parse().expect("a network")];
    let dial = DialPolicy { allow_plain_http: true, allow_private, ..DialPolicy::default() };
    let bridge = Bridge::new(BridgeOptions { dial, ..BridgeOptions::default() });
    let file = json!({"mcpServers": {"server": entry}}).to_string();
    bridge.apply(ServersFile::parse(file.as_bytes(), |_| None).expect("a file")).await;
    bridge.wait_until_settled(Duration::from_secs(20)).await;
    assert!(bridge.servers().iter().all(|server| server.ready), "{bridge:?}");
    let instance = InstanceId::generate();
    let options = options(&instance);
    let service = BridgeService::start(bus.clone(), bridge, None, options, instance).await;
    let gateway = BusGateway::start(requester).await.expect("a gateway");
    assert!(gateway.wait_for_any(Duration::from_secs(20)).await, "an index");
    (service.expect("a service"), gateway)
}
