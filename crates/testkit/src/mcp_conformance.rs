//! MCP's conformance suite against a server over HTTP.
//!
//! The suite expects a server with its own tools, prompts and resources. Scenarios that do not need them must pass;
//! a test lists all others, so that a new scenario fails it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tokio::process::Command;

use crate::{fixture::within_timeout, mcp_servers::McpPeer};

/// A scenario that must pass, except for these checks.
pub type Scenario = (&'static str, &'static [&'static str]);

/// Runs the suite for a revision of the protocol against the server at `url`. Scenarios that are neither in
/// `must_pass` nor excluded are errors; an excluded name that ends with `-` is a prefix.
///
/// # Panics
/// When the suite is not installed, or with all scenarios that do not pass.
pub async fn check_server(
    suite: McpPeer,
    revision: &str,
    url: &str,
    must_pass: &[Scenario],
    excluded: &[&str],
) {
    let output = tempfile::tempdir().unwrap();
    let (command, arguments) = suite.command();
    let run = Command::new(command)
        .args(arguments)
        .args(["server", "--url", url, "--suite", "all"])
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
    let is_excluded = |scenario: &str| {
        excluded
            .iter()
            .any(|name| scenario == *name || (name.ends_with('-') && scenario.starts_with(name)))
    };
    for scenario in results.keys() {
        let known = must_pass.iter().any(|(name, _)| name == scenario) || is_excluded(scenario);
        if !known {
            problems.push(format!("{scenario} is unknown; make it pass, or list it as excluded"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Reads the checks of each scenario from the directories `server-SCENARIO-TIME`.
fn results(output: &Path) -> BTreeMap<String, Vec<Value>> {
    const TIME_LEN: usize = "-2026-01-01T00-00-00-000Z".len();
    let folders = std::fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path());
    let result = |folder: PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let scenario = name[..name.len() - TIME_LEN].strip_prefix("server-").unwrap().to_owned();
        let checks = std::fs::read(folder.join("checks.json")).unwrap();
        (scenario, serde_json::from_slice(&checks).unwrap())
    };
    folders.map(result).collect()
}
