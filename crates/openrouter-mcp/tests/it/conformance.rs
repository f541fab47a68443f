//! MCP's conformance suite, against the program over HTTP.

use rockbot_testkit::{
    McpPeer,
    mcp_conformance::{Scenario, check_server},
};

use crate::program::HttpProgram;

// The exceptions need a tool of the suite, or a feature that the server does not offer.

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

/// Scenarios that call the suite's tools; a name that ends with `-` is a prefix.
const NEED_SUITE_TOOLS: [&str; 6] = [
    "tools-call-",
    "elicitation-",
    "input-required-result-",
    "json-schema-2020-12",
    "http-custom-header-server-validation",
    "server-sse-polling",
];
/// Scenarios of features that the server rejects: logging, completion, prompts, resources.
const NOT_OFFERED: [&str; 5] = [
    "logging-set-level",
    "completion-complete",
    "prompts-",
    "resources-",
    "sep-2164-resource-not-found",
];
/// Scenarios in which the suite checks nothing, because the server keeps no sessions.
const WITHOUT_SESSIONS: [&str; 2] = ["server-session-lifecycle", "server-sse-multiple-streams"];

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
    // The suite also sends requests with local web origins.
    let origins = "[\"http://127.0.0.1:*\", \"http://localhost:*\"]";
    let program = HttpProgram::start(&[("ROCKBOT_SERVER__ALLOWED_ORIGINS", origins)]).await;
    let excluded = [&NEED_SUITE_TOOLS[..], &NOT_OFFERED, &WITHOUT_SESSIONS].concat();
    check_server(suite, revision, &program.mcp(), must_pass, &excluded).await;
}
