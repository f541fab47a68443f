//! Programs of MCP servers: their starts and their environment.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use rockbot_testkit::fixture::TEST_TIMEOUT;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
};

/// An MCP server whose tool `environment` returns its environment. A file in its argument gets a line at each
/// start. With `late`, it replies to nothing before it has the handshake, as a program that is still being
/// downloaded: the bridge sends the handshake after 10 s without a reply to its probe.
const PROGRAM: &str = r#"
import json, os, sys
open(sys.argv[1], "a").write("started\n")
late, kept = "late" in sys.argv, []
def reply(message):
    method, identity = message.get("method"), message.get("id")
    if "id" not in message:
        return
    if method == "initialize":
        answer = {"result": {"protocolVersion": message["params"]["protocolVersion"],
                             "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}}
    elif method == "tools/list":
        answer = {"result": {"tools": [{"name": "environment", "inputSchema": {"type": "object"}}]}}
    elif method == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}}
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": identity, **answer}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    kept.append(message)
    if late and message.get("method") != "initialize":
        continue
    late = False
    while kept:
        reply(kept.pop(0))
"#;

/// Returns the servers with the program, which counts its starts in a file.
fn servers(fleet: &Fleet, starts: &str, options: &[&str]) -> Value {
    let starts = fleet.path(starts).display().to_string();
    let arguments = ["-c", PROGRAM, &starts].into_iter().chain(options.iter().copied());
    json!({"clock": {"command": "python3", "args": arguments.collect::<Vec<_>>(),
        "env": {"CONFIGURED": "yes"}}})
}

/// Returns a command that calls the program without a broker.
fn one_shot(fleet: &Fleet, servers: &Value) -> Command {
    let file = fleet.write("one-shot.json", &json!({"mcpServers": servers}).to_string());
    let mut command = fleet.program_without_bus("rockbot");
    command
        .arg("--mcp")
        .arg(file)
        .args(["mcp", "call", "clock", "environment"])
        // The web tools would read the certificates.
        .env("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#);
    command
}

#[tokio::test]
async fn slow_program_is_started_once() {
    let fleet = Fleet::new();
    let command = one_shot(&fleet, &servers(&fleet, "one-shot", &["late"]));
    let one_shot = async { Running::start(command).wait().await };
    let daemon = async {
        let _bridge = fleet.bridge("bridge-1", &servers(&fleet, "daemon", &["late"])).await;
        loop {
            let called = fleet.run(&["mcp", "call", "clock", "environment"]).await;
            if called.code == Some(0) {
                break;
            }
            // Not connected yet.
            called.assert_code(69);
        }
    };
    let (called, served) = tokio::join!(one_shot, timeout(TEST_TIMEOUT, daemon));
    called.assert_code(0);
    served.expect("the server of the bridge");
    for starts in ["one-shot", "daemon"] {
        let starts = fs::read_to_string(fleet.path(starts)).expect("a start");
        assert_eq!(starts, "started\n");
    }
}

/// Variables that a program gets, as docs/mcp.md lists them.
const INHERITED: [&str; 23] = [
    "PATH",
    "HOME",
    "USER",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "TERM",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
];
/// Variables that it does not get.
const PRIVATE: [&str; 5] = [
    "OPENAI_API_KEY",
    "ROCKBOT_LLM__API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "PGPASSWORD",
];

#[tokio::test]
async fn program_gets_proxies_and_certificates_and_no_other_variables() {
    let fleet = Fleet::new();
    let mut command = one_shot(&fleet, &servers(&fleet, "starts", &[]));
    // The program must still be found.
    let path = std::env::var("PATH").expect("a path");
    let value = |name: &str| match name {
        "PATH" => path.clone(),
        "HOME" | "TMPDIR" => fleet.path("").display().to_string(),
        name => format!("value of {name}"),
    };
    command.envs(INHERITED.iter().chain(&PRIVATE).map(|name| (name, value(name))));
    let called = Running::start(command).wait().await;
    called.assert_code(0);
    let environment: BTreeMap<String, String> =
        serde_json::from_str(called.stdout.trim()).expect("an environment");
    for name in INHERITED {
        let found = environment.get(name).map(String::as_str).unwrap_or_default();
        // Python may be a script of a version manager, which puts its own folders first.
        assert!(found.ends_with(&value(name)), "{name}: {found}");
    }
    assert_eq!(environment.get("CONFIGURED").map(String::as_str), Some("yes"));
    let is_private =
        |name: &&String| name.starts_with("ROCKBOT_") || PRIVATE.contains(&name.as_str());
    let private: Vec<_> = environment.keys().filter(is_private).collect();
    assert!(private.is_empty(), "{private:?}");
}

/// Servers beside those that never reply.
const READY: [&str; 5] = ["a", "clock", "m", "t", "z"];
/// Programs that never reply. Half of them also ignore SIGTERM.
const SILENT: usize = 20;
/// Time in which another server is served, and in which a process with silent servers stops. An attempt to connect
/// takes up to 90 s.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Returns servers with programs that never reply, and others.
fn silent_and_ready(fleet: &Fleet, starts: &str) -> Value {
    let ready = servers(fleet, starts, &[])["clock"].clone();
    let mut servers: Value = READY.iter().map(|name| (*name, ready.clone())).collect();
    let entries = servers.as_object_mut().expect("an object");
    for number in 0..SILENT {
        let command = ["while read -r line; do :; done", "trap '' TERM; while :; do sleep 1; done"]
            [number % 2];
        entries.insert(format!("s{number}"), json!({"command": "sh", "args": ["-c", command]}));
    }
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_programs_do_not_delay_other_servers() {
    let fleet = Fleet::new();
    let bridge = async {
        let started = Instant::now();
        let bridge = fleet.bridge("bridge-1", &silent_and_ready(&fleet, "daemon")).await;
        for server in READY {
            while fleet.run(&["mcp", "call", server, "environment"]).await.code != Some(0) {
                let waited = started.elapsed();
                assert!(waited < SERVED_WITHIN, "{server} not served after {waited:?}");
            }
        }
        let listed = fleet.run(&["mcp", "list"]).await;
        listed.assert_code(0);
        assert_contains(&listed.stdout, &["clock", "s0", "s19"]);
        bridge.send(Signal::TERM);
        bridge.wait_within(SERVED_WITHIN).await.assert_code(0);
    };
    let one_shot = async {
        let command = one_shot(&fleet, &silent_and_ready(&fleet, "one-shot"));
        Running::start(command).wait_within(SERVED_WITHIN).await.assert_code(0);
    };
    tokio::join!(bridge, one_shot);
}

/// `mcp list` waits 60 s for all servers.
#[tokio::test]
async fn list_of_silent_programs_is_bounded() {
    let fleet = Fleet::new();
    let servers = json!({"mcpServers": silent_and_ready(&fleet, "starts")});
    let file = fleet.write("mcp.json", &servers.to_string());
    let mut command = fleet.program_without_bus("rockbot");
    command.arg("--mcp").arg(file).args(["mcp", "list"]);
    command.env("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#);
    let listed = Running::start(command).wait_within(TEST_TIMEOUT + SERVED_WITHIN).await;
    listed.assert_code(0);
    assert_contains(&listed.stderr, &["waiting for MCP servers: "]);
    for server in READY {
        let row = listed.stdout.lines().find(|line| line.split(' ').next() == Some(server));
        assert_contains(row.unwrap_or_default(), &["connected"]);
    }
}
