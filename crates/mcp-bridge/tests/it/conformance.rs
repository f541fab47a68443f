//! The protocol's conformance suite: its servers against `examples/conformance-client.rs`.

use std::{path::PathBuf, time::Duration};

use rockbot_testkit::mcp_servers::McpPeer;
use tokio::{process::Command, time::timeout};

/// The time limit of the client. Passing scenarios take about a second.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of the suite, including the client.
const SUITE_TIMEOUT: Duration = Duration::from_secs(50);

/// Scenarios that the bridge intentionally does not pass, with the reason.
type Exclusions = [(&'static str, &'static str)];

const NO_USER: &str = "the bridge has no user to ask, and does not declare elicitation";
const NOT_DECLARED: &str = "an extension that the bridge does not declare";

const WRONG_ISSUER: &str = "its metadata names another issuer than its URL, which a client must \
                            reject (RFC 8414, 3.3); the later suite is correct";

const STABLE: &Exclusions = &[
    ("auth/2025-03-26-oauth-metadata-backcompat", WRONG_ISSUER),
    ("auth/client-credentials-jwt", NOT_DECLARED),
    ("auth/cross-app-access-complete-flow", NOT_DECLARED),
    ("elicitation-sep1034-client-defaults", NO_USER),
];

const NEXT: &Exclusions = &[
    ("auth/client-credentials-jwt", NOT_DECLARED),
    ("auth/dpop", NOT_DECLARED),
    ("auth/dpop-nonce", NOT_DECLARED),
    ("auth/enterprise-managed-authorization", NOT_DECLARED),
    ("auth/wif-jwt-bearer", NOT_DECLARED),
    ("elicitation-sep1034-client-defaults", NO_USER),
    ("sep-2640-client-no-prefetch", NOT_DECLARED),
    ("sep-2640-client-verify-digest", NOT_DECLARED),
    ("sep-2640-client-verify-frontmatter", NOT_DECLARED),
    ("sep-2640-client-verify-size", NOT_DECLARED),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Session,
    Authorization,
    /// Scenarios that fail when the client is 200 ms late.
    Timed,
}

impl Group {
    fn from_scenario(scenario: &str) -> Self {
        match scenario {
            "sse-retry" => Self::Timed,
            name if name.starts_with("auth/") => Self::Authorization,
            _ => Self::Session,
        }
    }
}

#[tokio::test]
async fn sessions_of_revisions_up_to_2025_11_25_conform() {
    assert_conformance(McpPeer::Conformance, Group::Session, STABLE, 2).await;
}

#[tokio::test]
async fn authorization_of_revisions_up_to_2025_11_25_conforms() {
    assert_conformance(McpPeer::Conformance, Group::Authorization, STABLE, 19).await;
}

#[tokio::test]
async fn sessions_of_revisions_up_to_2026_07_28_conform() {
    assert_conformance(McpPeer::ConformanceNext, Group::Session, NEXT, 9).await;
}

#[tokio::test]
async fn authorization_of_revisions_up_to_2026_07_28_conforms() {
    assert_conformance(McpPeer::ConformanceNext, Group::Authorization, NEXT, 28).await;
}

#[tokio::test]
async fn broken_stream_is_resumed_after_retry_time() {
    assert_conformance(McpPeer::Conformance, Group::Timed, STABLE, 1).await;
    assert_conformance(McpPeer::ConformanceNext, Group::Timed, NEXT, 1).await;
}

/// Runs every scenario of a group. Asserts that exactly `expected` of them pass, and that the excluded
/// ones do not.
async fn assert_conformance(suite: McpPeer, group: Group, excluded: &Exclusions, expected: usize) {
    let listed = scenarios(suite).await;
    let (mut passed, mut failures) = (0, Vec::new());
    for (name, _) in excluded {
        if !listed.iter().any(|scenario| scenario.name == *name) {
            failures.push(format!("{name} is excluded, but there is no such scenario"));
        }
    }
    for scenario in listed.iter().filter(|scenario| Group::from_scenario(&scenario.name) == group) {
        let Scenario { name, .. } = scenario;
        let reason = excluded.iter().find(|(excluded, _)| excluded == name);
        match (scenario.run(suite).await, reason) {
            (Ok(()), None) => passed += 1,
            (Ok(()), Some((_, reason))) => {
                failures.push(format!("{name} passes, but is excluded: {reason}"));
            }
            (Err(_), Some(_)) => {}
            (Err(output), None) => failures.push(format!("{name} does not pass:\n{output}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert_eq!(
        passed, expected,
        "the suite has other scenarios: review them and update the number"
    );
}

struct Scenario {
    name: String,
    /// The latest revision that contains it; `None` for an extension.
    revision: Option<String>,
}

/// Returns the client scenarios: lines like `  - NAME [REVISION,REVISION]` under their heading.
async fn scenarios(suite: McpPeer) -> Vec<Scenario> {
    let (_, list) = run_suite(suite, &["list"]).await;
    let section = list.split("Client scenarios").nth(1).expect("the suite lists its scenarios");
    let lines = section.lines().skip(1).map_while(|line| line.strip_prefix("  - "));
    let scenarios = lines.map(|line| {
        let (name, revisions) = line.split_once(" [").expect("a name and its revisions");
        let last = revisions.trim_end_matches(']').rsplit(',').next();
        let revision = last.filter(|revision| revision.starts_with("20")).map(str::to_owned);
        Scenario { name: name.to_owned(), revision }
    });
    scenarios.collect()
}

impl Scenario {
    /// Runs the scenario.
    ///
    /// # Errors
    /// The output of the suite, when the client does not pass.
    async fn run(&self, suite: McpPeer) -> Result<(), String> {
        let limit = CLIENT_TIMEOUT.as_millis().to_string();
        // The suite runs it in a shell.
        let command = format!("'{}'", client().display());
        let mut arguments = vec!["client", "--command", &command, "--timeout", &limit];
        arguments.extend(["--scenario", &self.name]);
        if let (McpPeer::ConformanceNext, Some(revision)) = (suite, &self.revision) {
            arguments.extend(["--spec-version", revision]);
        }
        let (success, output) = run_suite(suite, &arguments).await;
        // The suite also succeeds without any checks.
        let passed = success && !output.contains("Passed: 0/0");
        if passed { Ok(()) } else { Err(output) }
    }
}

/// Runs the suite; returns its success and its output.
async fn run_suite(suite: McpPeer, arguments: &[&str]) -> (bool, String) {
    let (program, first) = suite.command();
    let mut command = Command::new(program);
    let running = command.args(first).args(arguments).kill_on_drop(true).output();
    let output = timeout(SUITE_TIMEOUT, running).await;
    let output =
        output.unwrap_or_else(|_| panic!("{arguments:?}: timed out after {SUITE_TIMEOUT:?}"));
    let output = output.expect("the suite starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Returns the path of the client. Cargo builds examples with the tests of their package.
fn client() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folder = test.ancestors().nth(2).expect("it is in target/PROFILE/deps");
    let client = folder.join("examples/conformance-client");
    assert!(
        client.is_file(),
        "{} does not exist; run `cargo build -p rockbot-mcp-bridge --examples`, or all tests of the \
         package at once",
        client.display()
    );
    client
}
