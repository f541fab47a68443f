//! Workers of handler pools: the tool handler and the example workers pass `rockbot worker check`, and
//! keep the outcome of a call when they are killed.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::Requester;
use rockbot_contracts::{
    AgentName, HandlerPool, InstanceId, PoolName, SessionId, ToolHints, ToolRegistration,
    ToolSource, topology::ReplyAddress,
};
use rockbot_testkit::fixture::{TEST_TIMEOUT, within_timeout};
use rockbot_tool_rpc::RemoteTool;
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor, ToolRegistry, ToolUpdate};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{process::Command, sync::watch};

use crate::{
    fleet::{Fleet, assert_contains},
    identity::SecuredFleet,
    process::{Exit, Running},
};

/// A worker in another language.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Example {
    /// Name of the program, and of its folder in `examples/workers`.
    program: &'static str,
    pool: &'static str,
    tool: &'static str,
    /// A call of two seconds or more, and a part of its result.
    pause: (&'static str, &'static str),
}

pub(crate) const PYTHON: Example = Example {
    program: "python",
    pool: "tables",
    tool: "query_table",
    pause: (
        r#"{"csv": "n\n1\n", "sql": "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < 4000000) SELECT max(n) FROM count"}"#,
        "4000000",
    ),
};

const TYPESCRIPT: Example = Example {
    program: "typescript",
    pool: "text",
    tool: "test_regex",
    pause: (r#"{"pattern": "^(a+)+$", "text": "aaaaaaaaaaaaaaaaaaaaaaaaaa!"}"#, "no match"),
};

/// Checks that need a broker with the users of a fleet.
const NEEDS_USERS: &str = "announcement-user";

impl Example {
    pub(crate) fn start(self, fleet: &Fleet) -> Running {
        let url = rockbot_testkit::fixture::test_broker_url();
        Running::start(self.program(fleet, &url))
    }

    fn program(self, fleet: &Fleet, url: &str) -> Command {
        let folder = std::env::var_os("ROCKBOT_TEST_WORKERS").filter(|folder| !folder.is_empty());
        let folder = folder.map(PathBuf::from).expect(
            "this test needs the example workers: run `cargo xtask test`, or `cargo xtask \
             worker-examples` and set ROCKBOT_TEST_WORKERS as it says",
        );
        let mut command = Command::new(folder.join(self.program));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("ROCKBOT_BUS__URL", url)
            .env("ROCKBOT_BUS__NAMESPACE", &fleet.namespace)
            .env("ROCKBOT_HANDLER__POOL", self.pool);
        command
    }

    /// Returns the arguments for `worker check`.
    fn check_arguments(self) -> [String; 6] {
        let option = |name: &str, file: &str| {
            let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/workers");
            let path = root.join(self.program).join("check").join(file);
            [format!("--{name}"), format!("@{}", path.display())]
        };
        let [short, short_file] = option("arguments", "short.json");
        let [slow, slow_file] = option("slow-arguments", "slow.json");
        let [large, large_file] = option("large-arguments", "large.json");
        [short, short_file, slow, slow_file, large, large_file]
    }
}

/// Runs all checks of a pool's only worker with the program `rockbot`, and ends that worker.
async fn check(mut rockbot: Command, pool: &str, worker: Running, options: &[&str]) -> Exit {
    let pid = worker.pid().as_raw_nonzero().to_string();
    rockbot.args(["--json", "worker", "check", pool, "--drain-pid", &pid]).args(options);
    let check = Running::start(rockbot).wait_within(TEST_TIMEOUT * 2);
    // Waiting for the worker removes its process when it exits, which the last check observes.
    let (check, worker) = tokio::join!(check, worker.wait_within(TEST_TIMEOUT * 2));
    worker.assert_code(0);
    check
}

/// Fails unless all checks passed, except the given skipped ones.
#[track_caller]
fn assert_passed(check: &Exit, skipped: &[&str]) {
    let report = check.json();
    let checks = report["checks"].as_array().expect("checks");
    let unexpected: Vec<&Value> = checks
        .iter()
        .filter(|check| match check["result"].as_str() {
            Some("ok") => false,
            Some("skipped") => !skipped.iter().any(|name| check["name"] == *name),
            _ => true,
        })
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    assert!(checks.len() >= 35, "{report:#}");
    check.assert_code(0);
}

async fn example_passes(example: Example) {
    let fleet = Fleet::new();
    let mut worker = example.start(&fleet);
    worker.expect_log("ready").await;
    let arguments = example.check_arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let check = check(fleet.program("rockbot"), example.pool, worker, &arguments).await;
    assert_passed(&check, &[NEEDS_USERS]);
}

#[tokio::test]
async fn python_worker_passes_worker_check() {
    example_passes(PYTHON).await;
}

#[tokio::test]
async fn typescript_worker_passes_worker_check() {
    example_passes(TYPESCRIPT).await;
}

#[tokio::test]
async fn python_worker_needs_only_the_user_of_its_pool() {
    let secured = SecuredFleet::start().await;
    let example = Example { pool: "files", ..PYTHON };
    let url = secured.url("tool-handler.files");
    let mut worker = Running::start(example.program(&secured.fleet, &url));
    worker.expect_log("ready").await;
    let arguments = example.check_arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let rockbot = secured.program("rockbot", "cli");
    let check = check(rockbot, example.pool, worker, &arguments).await;
    // From 4.2.6 on, the broker does not let this user look for the dead letter of these requests. The
    // other tests of this file see all of them pass.
    let uninspected =
        ["bad-json", "missing-fields", "wrong-type", "newer-wire", "foreign-reply-to"];
    assert_passed(&check, &uninspected);
}

#[tokio::test]
async fn tool_handler_of_a_pool_passes_worker_check() {
    let fleet = Fleet::new();
    let settings =
        [("ROCKBOT_HANDLER__POOL", "files"), ("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#)];
    let worker = fleet.handler_with("handler-1", &settings).await;
    // A second run would return another text.
    let short = r#"{"command": "cat /proc/sys/kernel/random/uuid"}"#;
    let options = [
        ["--tool", "bash"],
        ["--arguments", short],
        ["--slow-arguments", r#"{"command": "echo started; sleep 10"}"#],
        ["--large-arguments", r#"{"command": "head -c 1500000 /dev/zero | tr '\\0' x"}"#],
    ];
    let check = check(fleet.program("rockbot"), "files", worker, &options.concat()).await;
    // A handler without an exporter of traces has no trace, and `bash` limits its output itself.
    assert_passed(&check, &[NEEDS_USERS, "trace", "large-result", "progress"]);
}

#[tokio::test]
async fn query_of_the_python_worker_is_bounded() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/workers/python");
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "test_query_table"]).current_dir(folder).kill_on_drop(true);
    let output = within_timeout("the tests of the query", tests.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A handler declares the queue of its pool before a worker of the same pool does.
async fn starts_beside_handler(example: Example) {
    let fleet = Fleet::new();
    let settings =
        [("ROCKBOT_HANDLER__POOL", example.pool), ("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#)];
    let mut handler = fleet.handler_with("handler-1", &settings).await;
    let mut worker = example.start(&fleet);
    worker.expect_log("ready").await;
    assert!(handler.is_alive() && worker.is_alive());
}

#[tokio::test]
async fn python_worker_starts_beside_tool_handler() {
    starts_beside_handler(PYTHON).await;
}

#[tokio::test]
async fn typescript_worker_starts_beside_tool_handler() {
    starts_beside_handler(TYPESCRIPT).await;
}

/// A model that calls the tool of the Python worker, and reads its guide.
const SUMS_A_TABLE: &str = r#"
[[turn]]
[[turn.call]]
name = "get_tool_guide"
arguments = { name = "tables" }
[[turn.call]]
name = "query_table"
arguments = { csv = "city,people\nA,20\nB,22\n", sql = "SELECT sum(people) AS all_people FROM data" }
[[turn]]
text = "{{result.get_tool_guide}} The sum: {{result.query_table}}"
"#;

/// A model that calls the tool of the TypeScript worker, and reads its guide.
const FINDS_A_NUMBER: &str = r#"
[[turn]]
[[turn.call]]
name = "get_tool_guide"
arguments = { name = "regex" }
[[turn.call]]
name = "test_regex"
arguments = { pattern = "\\d+", text = "room 42" }
[[turn]]
text = "{{result.get_tool_guide}} The matches: {{result.test_regex}}"
"#;

/// Runs a turn that uses the tool and the guide of a worker, with `rockbot chat`.
async fn chat_uses_tool_and_guide(example: Example, script: &str, expected: &[&str]) {
    let fleet = Fleet::new();
    let mut worker = example.start(&fleet);
    worker.expect_log("ready").await;
    let script = fleet.write("script.toml", script);
    let mut agent = fleet.program("rockbot-agent");
    agent.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    agent.expect_log("handler announced its tools").await;
    let chat = fleet.run(&["chat", "Use the tool, after its guide."]).await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, expected);
}

#[tokio::test]
async fn chat_uses_tool_and_guide_of_python_worker() {
    let expected =
        ["The table is called `data`.", "← query_table ran on tables-worker/", "all_people\n42"];
    chat_uses_tool_and_guide(PYTHON, SUMS_A_TABLE, &expected).await;
}

#[tokio::test]
async fn chat_uses_tool_and_guide_of_typescript_worker() {
    let expected = [
        "by the tool handler of pool text, between",
        "← test_regex ran on text-worker/",
        r#""index":5,"match":"42""#,
    ];
    chat_uses_tool_and_guide(TYPESCRIPT, FINDS_A_NUMBER, &expected).await;
}

/// Kills a worker while it runs a call. Another one runs the call again, because the tool is read-only.
async fn killed_worker_loses_no_call(example: Example) {
    let fleet = Fleet::new();
    let mut killed = example.start(&fleet);
    killed.expect_log("ready").await;
    let (progress, mut running) = watch::channel(false);
    let call = tokio::spawn(call(fleet.bus(|_| {}).await, example, progress));
    let started = running.wait_for(|running| *running);
    within_timeout("progress of the call", started).await.expect("the call is running");
    killed.send(Signal::KILL);
    killed.wait_for_exit().await;
    let mut other = example.start(&fleet);
    other.expect_log("ready").await;
    let result = within_timeout("the result", call).await.expect("no panic");
    assert!(result.contains(example.pause.1), "{result}");
    other.send(Signal::TERM);
    other.wait().await.assert_code(0);
}

#[tokio::test]
async fn call_of_killed_python_worker_runs_again() {
    killed_worker_loses_no_call(PYTHON).await;
}

#[tokio::test]
async fn call_of_killed_typescript_worker_runs_again() {
    killed_worker_loses_no_call(TYPESCRIPT).await;
}

/// Calls the tool of a worker, and notes its progress.
async fn call(
    bus: Arc<dyn rockbot_bus::Bus>,
    example: Example,
    progress: watch::Sender<bool>,
) -> String {
    let name = AgentName::new("caller").expect("a name");
    let address = ReplyAddress::new(name.clone(), InstanceId::generate());
    let requester = Arc::new(Requester::new(bus, address));
    let registration = ToolRegistration {
        name: example.tool.to_owned(),
        label: None,
        description: example.tool.to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::READ_ONLY,
        timeout_ms: None,
    };
    let pool = PoolName::new(example.pool).expect("a name");
    let key = HandlerPool::Named(pool).invoke_key();
    let registry = ToolRegistry::new();
    let remote = RemoteTool::new(registration, requester, key);
    registry.register(Arc::new(remote)).expect("registered");
    let mut context = ToolContext::new(example.tool, SessionId::generate(), name);
    context.deadline = tokio::time::Instant::now() + Duration::from_secs(50);
    context.updates = Some(Arc::new(move |update| {
        if matches!(update, ToolUpdate::Progress(_)) {
            progress.send_replace(true);
        }
    }));
    let call = ToolCall { context, arguments: example.pause.0.to_owned().into() };
    let result = ToolExecutor::new(Arc::new(registry)).execute(call).await;
    result.expect("a result").to_text().into_owned()
}
