//! The protocol's own conformance suite, which plays servers for `examples/conformance-client.rs`.

use std::{path::PathBuf, time::Duration};

use rockbot_testkit::mcp_peers::McpPeer;
use tokio::{process::Command, time::timeout};

/// How long the client may take. Those that pass take about a second.
const CLIENT_WITHIN: Duration = Duration::from_secs(30);
/// How long the suite may take around it.
const SUITE_WITHIN: Duration = Duration::from_secs(50);

/// Scenarios that the bridge does not pass, and why that is as it should be.
type Exclusions = [(&'static str, &'static str)];

const NOBODY_TO_ASK: &str = "a bridge has nobody to ask, and does not accept in a person's name";
const NOT_DECLARED: &str = "an extension that the bridge does not declare";

const WRONG_ISSUER: &str = "its metadata names another issuer than it is found for, which a client \
                            must not use (RFC 8414, 3.3); the later suite has that right";

const STABLE: &Exclusions = &[
    ("auth/2025-03-26-oauth-metadata-backcompat", WRONG_ISSUER),
    ("auth/client-credentials-jwt", NOT_DECLARED),
    ("auth/cross-app-access-complete-flow", NOT_DECLARED),
    ("elicitation-sep1034-client-defaults", NOBODY_TO_ASK),
];

const NEXT: &Exclusions = &[
    ("auth/client-credentials-jwt", NOT_DECLARED),
    ("auth/dpop", NOT_DECLARED),
    ("auth/dpop-nonce", NOT_DECLARED),
    ("auth/enterprise-managed-authorization", NOT_DECLARED),
    ("auth/wif-jwt-bearer", NOT_DECLARED),
    ("elicitation-sep1034-client-defaults", NOBODY_TO_ASK),
    ("sep-2640-client-no-prefetch", NOT_DECLARED),
    ("sep-2640-client-verify-digest", NOT_DECLARED),
    ("sep-2640-client-verify-frontmatter", NOT_DECLARED),
    ("sep-2640-client-verify-size", NOT_DECLARED),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Session,
    Authorisation,
    /// Those that fail when the client is a fifth of a second late.
    Timed,
}

impl Group {
    fn of(scenario: &str) -> Self {
        match scenario {
            "sse-retry" => Self::Timed,
            name if name.starts_with("auth/") => Self::Authorisation,
            _ => Self::Session,
        }
    }
}

#[tokio::test]
async fn sessions_of_revisions_up_to_2025_11_25_conform() {
    conforms(McpPeer::Conformance, Group::Session, STABLE, 2).await;
}

#[tokio::test]
async fn authorisation_of_revisions_up_to_2025_11_25_conforms() {
    conforms(McpPeer::Conformance, Group::Authorisation, STABLE, 19).await;
}

#[tokio::test]
async fn sessions_of_revisions_up_to_2026_07_28_conform() {
    conforms(McpPeer::ConformanceNext, Group::Session, NEXT, 9).await;
}

#[tokio::test]
async fn authorisation_of_revisions_up_to_2026_07_28_conforms() {
    conforms(McpPeer::ConformanceNext, Group::Authorisation, NEXT, 28).await;
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_again_when_its_server_said() {
    conforms(McpPeer::Conformance, Group::Timed, STABLE, 1).await;
    conforms(McpPeer::ConformanceNext, Group::Timed, NEXT, 1).await;
}

/// Runs every scenario of a group: `passes` of those that the suite lists pass, and the excluded
/// ones do not.
async fn conforms(suite: McpPeer, group: Group, excluded: &Exclusions, passes: usize) {
    let listed = scenarios(suite).await;
    let (mut passed, mut wrong) = (0, Vec::new());
    for (name, _) in excluded {
        if !listed.iter().any(|scenario| scenario.name == *name) {
            wrong.push(format!("{name} is excluded, but there is no such scenario"));
        }
    }
    for scenario in listed.iter().filter(|scenario| Group::of(&scenario.name) == group) {
        let Scenario { name, .. } = scenario;
        let reason = excluded.iter().find(|(excluded, _)| excluded == name);
        match (scenario.run(suite).await, reason) {
            (Ok(()), None) => passed += 1,
            (Ok(()), Some((_, reason))) => {
                wrong.push(format!("{name} passes, but is excluded: {reason}"));
            }
            (Err(_), Some(_)) => {}
            (Err(words), None) => wrong.push(format!("{name} does not pass:\n{words}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(passed, passes, "the suite has other scenarios: look at them, and count them here");
}

struct Scenario {
    name: String,
    /// The latest revision that has it; none for an extension.
    revision: Option<String>,
}

/// The scenarios for clients: lines like `  - NAME [REVISION,REVISION]` under their heading.
async fn scenarios(suite: McpPeer) -> Vec<Scenario> {
    let (_, list) = said(suite, &["list"]).await;
    let of_clients = list.split("Client scenarios").nth(1).expect("the suite lists its scenarios");
    let lines = of_clients.lines().skip(1).map_while(|line| line.strip_prefix("  - "));
    let scenarios = lines.map(|line| {
        let (name, revisions) = line.split_once(" [").expect("a name and its revisions");
        let last = revisions.trim_end_matches(']').rsplit(',').next();
        let revision = last.filter(|revision| revision.starts_with("20")).map(str::to_owned);
        Scenario { name: name.to_owned(), revision }
    });
    scenarios.collect()
}

impl Scenario {
    /// # Errors
    /// What the suite says, when the client does not pass.
    async fn run(&self, suite: McpPeer) -> Result<(), String> {
        let limit = CLIENT_WITHIN.as_millis().to_string();
        // The suite has a shell run it.
        let command = format!("'{}'", client().display());
        let mut arguments = vec!["client", "--command", &command, "--timeout", &limit];
        arguments.extend(["--scenario", &self.name]);
        if let (McpPeer::ConformanceNext, Some(revision)) = (suite, &self.revision) {
            arguments.extend(["--spec-version", revision]);
        }
        let (content, words) = said(suite, &arguments).await;
        // Content with a client that gave it nothing to look at, too.
        let passed = content && !words.contains("Passed: 0/0");
        if passed { Ok(()) } else { Err(words) }
    }
}

/// Whether the suite is content, and what it says.
async fn said(suite: McpPeer, arguments: &[&str]) -> (bool, String) {
    let (program, first) = suite.command();
    let mut command = Command::new(program);
    let running = command.args(first).args(arguments).kill_on_drop(true).output();
    let output = timeout(SUITE_WITHIN, running).await;
    let output = output.unwrap_or_else(|_| panic!("{arguments:?}: no end in {SUITE_WITHIN:?}"));
    let output = output.expect("the suite starts");
    let words = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&words).into_owned())
}

/// Cargo builds examples along with the tests of their package, and puts them beside these.
fn client() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folder = test.ancestors().nth(2).expect("it is in target/PROFILE/deps");
    let client = folder.join("examples/conformance-client");
    assert!(
        client.is_file(),
        "there is no {}: run `cargo build -p rockbot-mcp-bridge --examples`, or all tests of that \
         package at once",
        client.display()
    );
    client
}
