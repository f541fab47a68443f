//! MCP's conformance suite over HTTP.
//!
//! The suite expects a server with its own tools, prompts and resources. Scenarios that do not need them must pass;
//! all others are listed here, so that a new scenario fails the test.

use std::{collections::BTreeMap, path::Path, process::Stdio};

use rockbot_mcp_server::McpClient;
use rockbot_testkit::{McpPeer, fixture::within_timeout};
use serde_json::Value;
use tokio::process::Command;

use crate::fixture::{Handler, filter};

/// A scenario that must pass, except for these checks: they need a tool of the suite.
type Scenario = (&'static str, &'static [&'static str]);

const WITH_SESSIONS: [Scenario; 6] = [
    ("server-initialize", &[]),
    ("ping", &[]),
    ("tools-list", &[]),
    ("prompts-list", &[]),
    ("resources-list", &[]),
    ("dns-rebinding-protection", &[]),
];
const STATELESS: [Scenario; 8] = [
    (
        "server-stateless",
        &[
            "sep-2575-server-rejects-undeclared-capability",
            "sep-2575-missing-capability-http-400",
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-server-no-log-without-loglevel",
        ],
    ),
    ("tools-list", &[]),
    ("prompts-list", &[]),
    ("resources-list", &[]),
    ("dns-rebinding-protection", &[]),
    ("caching", &[]),
    ("http-header-validation", &[]),
    ("sep-2164-resource-not-found", &[]),
];

/// Scenarios that call the tools, prompts or resources of the suite; a name that ends with `-` is a prefix.
const NEED_SUITE_FIXTURES: [&str; 10] = [
    "tools-call-",
    "elicitation-",
    "input-required-result-",
    "json-schema-2020-12",
    "http-custom-header-server-validation",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "prompts-get-",
    "resources-",
    "server-session-lifecycle",
];
/// Scenarios of features that the server does not offer: logging, completion.
const NOT_OFFERED: [&str; 2] = ["logging-set-level", "completion-complete"];

#[tokio::test]
async fn stable_suite_passes() {
    check(McpPeer::Conformance, "2025-11-25", &WITH_SESSIONS).await;
}

#[tokio::test]
async fn next_suite_passes_for_2025_11_25() {
    check(McpPeer::ConformanceNext, "2025-11-25", &WITH_SESSIONS).await;
}

#[tokio::test]
async fn next_suite_passes_for_2026_07_28() {
    check(McpPeer::ConformanceNext, "2026-07-28", &STATELESS).await;
}

async fn check(suite: McpPeer, revision: &str, must_pass: &[Scenario]) {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    // The suite calls any tool that is listed.
    let client = McpClient::new("suite", filter(&["chatty", "hang", "wait"])).unwrap();
    let http = fleet.http_for(client).await;
    let output = tempfile::tempdir().unwrap();
    let (command, arguments) = suite.command();
    let run = Command::new(command)
        .args(arguments)
        .args(["server", "--url", &http.url, "--suite", "all"])
        .args(["--spec-version", revision, "--output-dir"])
        .arg(output.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let suite_output = within_timeout("the end of the suite", run).await.unwrap();
    let results = results(output.path());
    assert!(!results.is_empty(), "{}", String::from_utf8_lossy(&suite_output.stderr));

    let mut problems = Vec::new();
    for (scenario, untestable) in must_pass {
        let Some(checks) = results.get(*scenario) else {
            problems.push(format!("{scenario} did not run"));
            continue;
        };
        let with = |status| checks.iter().filter(move |check| check["status"] == status);
        let failed =
            with("FAILURE").filter(|check| !untestable.iter().any(|id| check["id"] == **id));
        problems.extend(failed.map(|check| format!("{scenario}: {check:#}")));
        if with("SUCCESS").count() == 0 {
            problems.push(format!("{scenario}: nothing was checked"));
        }
    }
    for scenario in results.keys() {
        let known = must_pass.iter().any(|(name, _)| name == scenario) || is_excluded(scenario);
        if !known {
            problems.push(format!("{scenario} is unknown; make it pass, or list it as excluded"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn is_excluded(scenario: &str) -> bool {
    let mut excluded = NEED_SUITE_FIXTURES.iter().chain(&NOT_OFFERED);
    excluded.any(|name| scenario == *name || (name.ends_with('-') && scenario.starts_with(name)))
}

/// Reads the checks of each scenario from the directories `server-SCENARIO-TIME`.
fn results(output: &Path) -> BTreeMap<String, Vec<Value>> {
    const TIME_LEN: usize = "-2026-01-01T00-00-00-000Z".len();
    let folders = std::fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path());
    let result = |folder: std::path::PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let scenario = name[..name.len() - TIME_LEN].strip_prefix("server-").unwrap().to_owned();
        let checks = std::fs::read(folder.join("checks.json")).unwrap();
        (scenario, serde_json::from_slice(&checks).unwrap())
    };
    folders.map(result).collect()
}
