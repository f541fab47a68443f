//! MCP's conformance suite over HTTP.

use rockbot_mcp_server::McpClient;
use rockbot_testkit::{
    McpPeer,
    mcp_conformance::{Scenario, check_server},
};

use crate::fixture::{Handler, filter};

// The exceptions need a tool of the suite.

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
    let excluded = [&NEED_SUITE_FIXTURES[..], &NOT_OFFERED].concat();
    check_server(suite, revision, &http.url, must_pass, &excluded).await;
}
