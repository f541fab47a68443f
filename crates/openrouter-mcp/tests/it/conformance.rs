//! The protocol's own conformance suite, against the program over HTTP.
//!
//! The suite is written for a server with tools, prompts and resources made for it. What does not
//! need them must pass; everything else is named here, so that a new scenario is not overlooked.

use std::{collections::BTreeMap, path::Path, process::Stdio};

use rockbot_testkit::{McpPeer, fixture::within_timeout};
use serde_json::Value;
use tokio::process::Command;

use crate::program::HttpProgram;

/// A scenario that must pass, but for the checks of a tool made for the suite, or of what the
/// server does not offer.
type Scenario = (&'static str, &'static [&'static str]);

const WITH_SESSIONS: [Scenario; 4] = [
    ("server-initialize", &[]),
    ("ping", &[]),
    ("tools-list", &[]),
    ("dns-rebinding-protection", &[]),
];
const STATELESS: [Scenario; 6] = [
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
    ("server-sse-multiple-streams", &[]),
    ("dns-rebinding-protection", &[]),
    (
        "caching",
        &[
            "sep-2549-prompts-list-caching-hints",
            "sep-2549-resources-list-caching-hints",
            "sep-2549-resources-templates-list-caching-hints",
        ],
    ),
    ("http-header-validation", &[]),
];

/// They call tools made for the suite; a scenario that ends with `-` stands for all that begin so.
const WITH_TOOLS_OF_THE_SUITE: [&str; 6] = [
    "tools-call-",
    "elicitation-",
    "input-required-result-",
    "json-schema-2020-12",
    "http-custom-header-server-validation",
    "server-sse-polling",
];
/// What the server does not offer, and says so: logging, completion, prompts, resources.
const NOT_OFFERED: [&str; 5] = [
    "logging-set-level",
    "completion-complete",
    "prompts-",
    "resources-",
    "sep-2164-resource-not-found",
];
/// The server keeps no sessions, of which the suite takes note and checks nothing.
const WITHOUT_SESSIONS: [&str; 2] = ["server-session-lifecycle", "server-sse-multiple-streams"];

#[tokio::test]
async fn the_stable_suite_passes_where_it_applies() {
    check(McpPeer::Conformance, "2025-11-25", &WITH_SESSIONS).await;
}

#[tokio::test]
async fn the_next_suite_passes_where_it_applies_up_to_2025_11_25() {
    check(McpPeer::ConformanceNext, "2025-11-25", &WITH_SESSIONS).await;
}

#[tokio::test]
async fn the_next_suite_passes_where_it_applies_at_2026_07_28() {
    check(McpPeer::ConformanceNext, "2026-07-28", &STATELESS).await;
}

async fn check(suite: McpPeer, revision: &str, must_pass: &[Scenario]) {
    // The suite also comes as a web page of this machine.
    let origins = "[\"http://127.0.0.1:*\", \"http://localhost:*\"]";
    let program = HttpProgram::start(&[("ROCKBOT_SERVER__ALLOWED_ORIGINS", origins)]).await;
    let output = tempfile::tempdir().unwrap();
    let (command, arguments) = suite.command();
    let run = Command::new(command)
        .args(arguments)
        .args(["server", "--url", &program.mcp(), "--suite", "all"])
        .args(["--spec-version", revision, "--output-dir"])
        .arg(output.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let said = within_timeout("the end of the suite", run).await.unwrap();
    let results = results(output.path());
    assert!(!results.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));

    for (scenario, untestable) in must_pass {
        let checks = results.get(*scenario).unwrap_or_else(|| panic!("{scenario} did not run"));
        let with = |status| checks.iter().filter(move |check| check["status"] == status);
        let failed: Vec<&Value> = with("FAILURE")
            .filter(|check| !untestable.iter().any(|id| check["id"] == **id))
            .collect();
        assert!(failed.is_empty(), "{scenario}: {failed:#?}");
        assert!(with("SUCCESS").count() > 0, "{scenario}: nothing was checked");
    }
    for scenario in results.keys() {
        let known = must_pass.iter().any(|(name, _)| name == scenario) || is_excluded(scenario);
        assert!(known, "{scenario} is new: let it pass, or say why it does not apply");
    }
}

fn is_excluded(scenario: &str) -> bool {
    let excluded = WITH_TOOLS_OF_THE_SUITE.iter().chain(&NOT_OFFERED).chain(&WITHOUT_SESSIONS);
    excluded
        .into_iter()
        .any(|name| scenario == *name || (name.ends_with('-') && scenario.starts_with(name)))
}

/// The checks of each scenario, from the folders `server-SCENARIO-TIME`.
fn results(output: &Path) -> BTreeMap<String, Vec<Value>> {
    const TIME: usize = "-2026-01-01T00-00-00-000Z".len();
    let folders = std::fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path());
    let result = |folder: std::path::PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let scenario = name[..name.len() - TIME].strip_prefix("server-").unwrap().to_owned();
        let checks = std::fs::read(folder.join("checks.json")).unwrap();
        (scenario, serde_json::from_slice(&checks).unwrap())
    };
    folders.map(result).collect()
}
