//! The fleet as an MCP server over standard input and output, for clients of other authors.

use std::process::Stdio;

use rockbot_testkit::{
    fixture::{test_broker_url, wait_until, within_timeout},
    mcp_servers::McpPeer,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

use crate::{binaries, fleet::Fleet, process::Running};

/// Script of a model that answers without tools.
const ANSWERS: &str = "[[turn]]\ntext = \"The fleet answers.\"\n";

/// Returns the command that serves a fleet, with its settings: clients pass on little of their environment.
fn serve(fleet: &Fleet, settings: &[(&str, &str)], arguments: &[&str]) -> Vec<String> {
    let store = fleet.path("serve.db").display().to_string();
    let store = format!("sqlite:{store}");
    let settings =
        [("ROCKBOT_STORE__URL", store.as_str())].into_iter().chain(settings.iter().copied());
    let mut command = vec!["env".to_owned()];
    command.extend(settings.map(|(name, value)| format!("{name}={value}")));
    command.push(binaries::path("rockbot").display().to_string());
    command.extend(["mcp", "serve"].map(str::to_owned));
    command.extend(arguments.iter().map(|&argument| argument.to_owned()));
    command
}

/// Returns the command that serves a fleet on the test broker.
fn serve_on_broker(fleet: &Fleet, arguments: &[&str]) -> Vec<String> {
    let (url, namespace) = (test_broker_url(), fleet.namespace.clone());
    let settings = [("ROCKBOT_BUS__URL", url.as_str()), ("ROCKBOT_BUS__NAMESPACE", &namespace)];
    serve(fleet, &settings, arguments)
}

/// Runs steps with a client of another author, which starts the server itself.
async fn run(
    peer: McpPeer,
    library: &str,
    era: &str,
    server: &[String],
    steps: &Value,
) -> Vec<Value> {
    let (program, fixed) = peer.command();
    let run = Command::new(program)
        .args(fixed)
        .args([library, era, &json!(server).to_string(), &steps.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within_timeout("the end of the client", run).await.expect("an exit");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}\n{stderr}"))
}

fn text(step: &Value) -> &str {
    step["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{step}"))
}

#[tokio::test]
async fn clients_use_tools_servers_and_agents_of_a_running_fleet() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "The bus carries each call.\n");
    fleet.write("script.toml", ANSWERS);
    let _handler = fleet.handler("handler-1").await;
    let (program, arguments) = McpPeer::Everything.command();
    let everything = json!({"command": program, "args": arguments});
    let _bridge = fleet.bridge("bridge-1", &json!({"Everything": everything})).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"));
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;

    let server = serve_on_broker(&fleet, &["--agent", "assistant", "--deny", "write_file"]);
    let steps = json!([
        {"list": "tools"},
        {"call": "read_file", "arguments": {"path": "notes.md"}},
        {"call": "read_file", "arguments": {"path": "missing.md"}},
        {"call": "Everything__echo", "arguments": {"message": "hello"}},
        {"call": "agent__assistant", "arguments": {"message": "Who answers?"}},
        {"call": "write_file", "arguments": {"path": "a", "content": "b"}},
        {"list": "prompts"},
    ]);
    for (peer, library, era) in [
        (McpPeer::ClientPython, "mcp", "legacy"),
        (McpPeer::ClientPython, "fastmcp", "2026-07-28"),
        (McpPeer::ClientTypeScript, "sdk", "legacy"),
        (McpPeer::ClientTypeScript, "client", "2026-07-28"),
    ] {
        let results = run(peer, library, era, &server, &steps).await;
        let [tools, read, missing, echo, agent, denied, prompts] = results.as_slice() else {
            panic!("{results:?}")
        };
        let names: Vec<_> =
            tools.as_array().into_iter().flatten().map(|tool| tool["name"].clone()).collect();
        for name in ["read_file", "Everything__echo", "agent__assistant"] {
            assert!(names.contains(&name.into()), "{name}: {names:?}");
        }
        assert!(!names.contains(&"write_file".into()), "{names:?}");
        assert!(text(read).contains("The bus carries each call."), "{read}");
        assert_eq!(missing["result"]["isError"], true, "{missing}");
        assert_eq!(missing["result"]["structuredContent"]["error"]["executed"], "yes", "{missing}");
        assert_eq!(text(echo), "Echo: hello");
        assert_eq!(text(agent), "The fleet answers.");
        let continuation = agent["result"]["content"][1]["text"].as_str().expect("a text");
        assert!(continuation.contains("\"conversation\": "), "{continuation}");
        assert!(
            denied["error"].as_str().is_some_and(|error| error.contains("unknown tool")),
            "{denied}"
        );
        assert!(prompts.as_array().is_some_and(|prompts| !prompts.is_empty()), "{prompts}");
    }
    agent.send(Signal::TERM);
    agent.wait().await.assert_code(0);
}

#[tokio::test]
async fn embedded_fleet_serves_its_client() {
    let fleet = Fleet::new();
    let root = fleet.path("").display().to_string();
    let server = serve(&fleet, &[("ROCKBOT_FILES__ROOT", &root)], &[]);
    let steps = json!([
        {"call": "write_file", "arguments": {"path": "a.txt", "content": "written"}},
        {"call": "read_file", "arguments": {"path": "a.txt"}},
    ]);
    let results = run(McpPeer::ClientPython, "mcp", "2026-07-28", &server, &steps).await;
    assert_eq!(results[0]["result"]["isError"], false, "{results:?}");
    assert!(text(&results[1]).contains("written"), "{results:?}");
    assert_eq!(std::fs::read_to_string(fleet.path("a.txt")).expect("a file"), "written");

    // Without a client it ends, and prints nothing.
    let mut command = fleet.program_without_bus("rockbot");
    command.args(["mcp", "serve"]);
    let exit = Running::start(command).wait().await;
    exit.assert_code(0);
    assert_eq!(exit.stdout, "");
    let mut command = fleet.program_without_bus("rockbot");
    command.args(["mcp", "serve", "--agent", "assistant"]);
    Running::start(command).wait().await.assert_code(64);
}

/// A server that the test speaks with itself.
struct RawServer {
    child: Child,
}

impl RawServer {
    /// Starts a server, and sends it a call with a key.
    async fn call(command: &[String], key: &str, script: &str) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let stdin = child.stdin.as_mut().expect("a pipe");
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"}}});
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": "bash", "arguments": {"command": script}, "_meta": {"rockbot/callId": key}}});
        for message in [initialize, initialized, list] {
            stdin.write_all(format!("{message}\n").as_bytes()).await.expect("written");
        }
        let mut server = Self { child };
        // The tools of the fleet are known then.
        server.response(2).await;
        let stdin = server.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(format!("{call}\n").as_bytes()).await.expect("written");
        server
    }

    /// Reads until the response with this id.
    async fn response(&mut self, id: u32) -> Value {
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines();
        loop {
            let line = within_timeout("a message", lines.next_line()).await.expect("a pipe");
            let message: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    /// Kills the process: it cannot cancel the call.
    async fn kill(mut self) {
        let id = self.child.id().expect("running");
        let pid = Pid::from_raw(id.cast_signed()).expect("a process id");
        kill_process(pid, Signal::KILL).expect("killed");
        self.child.wait().await.expect("an exit");
    }
}

#[tokio::test]
async fn repeated_call_runs_once_when_its_server_is_killed() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let server = serve_on_broker(&fleet, &["--client", "laptop"]);
    let script = "echo run >> runs; until [ -e go ]; do sleep 0.05; done; cat runs";
    for _ in 0..2 {
        let killed = RawServer::call(&server, "key-1", script).await;
        wait_until("the run", || fleet.path("runs").exists()).await;
        killed.kill().await;
    }
    let mut last = RawServer::call(&server, "key-1", script).await;
    fleet.write("go", "");
    let result = last.response(3).await;
    assert_eq!(result["content"][0]["text"].as_str().map(str::trim), Some("run"), "{result}");
    // The journal of the handler knows the outcome.
    let mut again = RawServer::call(&server, "key-1", script).await;
    let repeated = again.response(3).await;
    assert_eq!(repeated["content"], result["content"], "{repeated}");
    assert_eq!(std::fs::read_to_string(fleet.path("runs")).expect("a file"), "run\n");
}
