//! Traces and metrics of a fleet.

use rockbot_testkit::{Collector, Span, fixture::within_timeout};
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
};

use crate::{
    binaries,
    fleet::{Fleet, assert_contains},
    http,
    process::Running,
};

/// Script of a model that calls a tool of the handler and one of an MCP server.
const CALLS_BOTH: &str = r#"
[[turn]]
text = "Let me see."
[[turn.call]]
name = "bash"
arguments = { command = "echo secret-of-the-user" }
[[turn.call]]
name = "mcp_invoke_tool"
arguments = { server_name = "account", tool_name = "list_models", arguments = {} }

[[turn]]
text = "Both answered."
"#;

#[tokio::test]
async fn turn_is_one_trace_to_mcp_server() {
    let collector = Collector::start().await;
    let endpoint = collector.endpoint();
    let fleet = Fleet::new();
    fleet.write("script.toml", CALLS_BOTH);
    let settings = [("ROCKBOT_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
    let mut handler = fleet.handler_with("handler-1", &settings).await;
    let server = json!({"account": {
        "command": binaries::path("rockbot-openrouter-mcp"),
        "env": {
            "ROCKBOT_SERVER__TRANSPORT": "stdio",
            "ROCKBOT_OPENROUTER__API_KEY": "none",
            "ROCKBOT_OPENROUTER__BASE_URL": "http://127.0.0.1:9/api/v1",
            "ROCKBOT_TELEMETRY__OTLP_ENDPOINT": endpoint,
        },
    }});
    let _bridge = fleet.bridge_with("bridge-1", &server, &settings).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .envs(settings)
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"));
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    let mut chat = fleet.run(&["chat", "Do both."]).await;
    // The agent discovers handler and bridge shortly after it is ready.
    for _ in 0..20 {
        // The server's upstream is unreachable, so its call fails.
        let ran = ["← mcp_invoke_tool failed ran on", "← bash ran on"];
        if ran.iter().all(|one| chat.stdout.contains(one)) {
            break;
        }
        chat = fleet.run(&["chat", "Do both."]).await;
    }
    chat.assert_code(0);

    let names = [
        "chat *",
        "process user.message",
        "invoke_agent assistant",
        "execute_tool bash",
        "execute_tool mcp_invoke_tool",
        "send tool.invoke",
        "process tool.invoke",
        "send tool.result",
        // Sent to all bridges, or to the one known to have the server.
        "send tool.invoke.mcp*",
        "process tool.invoke.mcp*",
        // One span of the bridge and one of the server.
        "tools/call list_models",
        "tools/call list_models",
    ];
    let trace = collector.tree_with("tools/call list_models", &names).await;
    let find = |service: &str, name: &str| {
        let found = trace.iter().find(|span| span.service == service && span.name == name);
        found.unwrap_or_else(|| panic!("no {name} of {service} in {trace:#?}")).clone()
    };
    let sent = find("rockbot-agent", "send tool.invoke");
    assert_eq!(find("rockbot-tool-handler", "process tool.invoke").parent, sent.id);
    let run = find("rockbot-tool-handler", "execute_tool bash");
    assert_eq!(run.attributes["gen_ai.tool.name"], "bash");
    let called = find("rockbot-mcp-bridge", "tools/call list_models");
    assert_eq!(find("rockbot-openrouter-mcp", "tools/call list_models").parent, called.id);
    let roots = trace.iter().filter(|span| span.parent.is_empty()).count();
    assert_eq!(roots, 1, "{trace:#?}");
    let id: String = trace[0].trace.iter().map(|byte| format!("{byte:02x}")).collect();
    handler.expect_log(&format!("trace_id=\"{id}\"")).await;
    let trace = format!("{trace:?}");
    assert!(!trace.contains("secret-of-the-user"), "arguments were recorded without `content`");
    agent.send(Signal::TERM);
    agent.wait().await.assert_code(0);
}

/// Starts a handler that exports to `collector`, and calls `bash` once.
async fn handler_after_call(
    fleet: &Fleet,
    collector: &Collector,
    variables: &[(&str, &str)],
) -> Running {
    let endpoint = collector.endpoint();
    let variables = [&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())], variables].concat();
    let handler = fleet.handler_with("handler-1", &variables).await;
    let call = ["tools", "call", "bash", r#"{"command": "echo secret-$((6 * 7))"}"#];
    fleet.run(&call).await.assert_code(0);
    handler
}

/// Returns the span of a call of `bash` that a handler with these variables exports.
async fn exported_call(variables: &[(&str, &str)]) -> Span {
    let (fleet, collector) = (Fleet::new(), Collector::start().await);
    let _handler = handler_after_call(&fleet, &collector, variables).await;
    let trace = collector.trace_with("execute_tool bash", &["execute_tool bash"]).await;
    trace.into_iter().find(|span| span.name == "execute_tool bash").expect("its span")
}

#[tokio::test]
async fn otel_variables_set_endpoint_and_service() {
    let span = exported_call(&[("OTEL_SERVICE_NAME", "renamed")]).await;
    assert_eq!(span.service, "renamed");
    assert!(!format!("{span:?}").contains("secret"), "content was recorded: {span:#?}");
}

#[tokio::test]
async fn unsampled_and_disabled_traces_are_not_exported() {
    for variables in [
        &[("OTEL_TRACES_SAMPLER", "always_off")][..],
        &[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")],
        &[("OTEL_SDK_DISABLED", "true")],
    ] {
        let (fleet, collector) = (Fleet::new(), Collector::start().await);
        let handler = handler_after_call(&fleet, &collector, variables).await;
        // A handler exports its last spans before it exits.
        handler.send(Signal::TERM);
        handler.wait().await.assert_code(0);
        assert!(collector.spans().is_empty(), "{variables:?}: {:#?}", collector.spans());
    }
}

#[tokio::test]
async fn configured_ratio_replaces_sampler_variable() {
    let variables =
        [("OTEL_TRACES_SAMPLER", "always_off"), ("ROCKBOT_TELEMETRY__SAMPLE_RATIO", "1.0")];
    assert_eq!(exported_call(&variables).await.service, "rockbot-tool-handler");
}

#[tokio::test]
async fn content_is_recorded_when_configured() {
    let span = exported_call(&[("ROCKBOT_TELEMETRY__CONTENT", "true")]).await;
    let attributes = &span.attributes;
    assert!(attributes["gen_ai.tool.call.arguments"].contains("echo secret-"), "{attributes:?}");
    assert!(attributes["gen_ai.tool.call.result"].contains("secret-42"), "{attributes:?}");
}

#[tokio::test]
async fn otel_protocol_selects_http() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let fleet = Fleet::new();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ];
    let _handler = fleet.handler_with("handler-1", &variables).await;
    fleet.run(&["tools", "call", "bash", r#"{"command": "true"}"#]).await.assert_code(0);
    let request = within_timeout("an export", async {
        let (connection, _) = listener.accept().await.unwrap();
        let mut lines = BufReader::new(connection).lines();
        let mut head = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap().filter(|line| !line.is_empty()) {
            head.push(line.to_ascii_lowercase());
        }
        head
    });
    let head = request.await;
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/x-protobuf".to_owned()), "{head:?}");
}

#[tokio::test]
async fn call_increments_counters_by_one() {
    let fleet = Fleet::new();
    let mut handler =
        fleet.handler_with("handler-1", &[("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0")]).await;
    let admin = handler.admin_address().await;
    let metrics = async || http::request(&admin, "/metrics").await.1;
    let before = metrics().await;
    assert_contains(
        &before,
        &["rockbot_bus_connected 1", "rockbot_build_info{", "process_open_fds"],
    );
    assert!(!before.contains("tool_name=\"bash\""), "{before}");

    let call = ["tools", "call", "bash", r#"{"command": "true"}"#];
    fleet.run(&call).await.assert_code(0);
    let after = metrics().await;
    let labels = r#"{status="ok",tool_name="bash"}"#;
    assert_contains(
        &after,
        &[
            &format!("rockbot_tool_invocations_total{labels} 1"),
            &format!("rockbot_tool_invoke_duration_milliseconds_count{labels} 1"),
            r#"rockbot_tool_stage_duration_seconds_count{stage="queue"} 1"#,
            r#"rockbot_tool_stage_duration_seconds_count{stage="run"} 1"#,
            r#"rockbot_bus_published_total{kind="ToolInvokeResponse",outcome="confirmed"} 1"#,
        ],
    );
    // Counted after the confirm of the reply, for which the caller does not wait.
    let acked = r#"rockbot_bus_deliveries_total{outcome="acked",queue="tool.invoke"} 1"#;
    while !metrics().await.contains(acked) {}
    // A failure of the tool find its own series.
    fleet.run(&["tools", "call", "bash", r#"{"command": "exit 3"}"#]).await;
    assert_contains(&metrics().await, &[r#"{status="tool_error",tool_name="bash"} 1"#]);
}

#[tokio::test]
async fn agent_detects_missing_replies() {
    let fleet = Fleet::new();
    let handler = fleet.handler("handler-1").await;
    let mut agent = fleet.program("rockbot-agent");
    fleet.write("script.toml", CALLS_BOTH);
    agent
        .env("ROCKBOT_ADMIN__ADDRESS", "127.0.0.1:0")
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"));
    let mut agent = Running::start(agent);
    let admin = agent.admin_address().await;
    agent.expect_log("ready").await;
    let metrics = async || http::request(&admin, "/metrics").await.1;
    while !metrics().await.contains("rockbot_reply_probe_up 1") {}
    // A stopped handler keeps its queue but sends no replies.
    handler.send(Signal::STOP);
    let stopped = std::time::Instant::now();
    agent.expect_log("replies to calls do not arrive").await;
    assert!(stopped.elapsed().as_secs() < 15, "after {:?}", stopped.elapsed());
    assert_contains(&metrics().await, &["rockbot_reply_probe_up 0"]);
    let (status, readiness) = http::request(&admin, "/readyz").await;
    assert_eq!(status, 503, "{readiness}");
    handler.send(Signal::CONT);
    agent.expect_log("replies to calls arrive again").await;
    agent.send(Signal::TERM);
    agent.wait().await.assert_code(0);
}
