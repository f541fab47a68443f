//! Samples of output in the documents are what the programs print.

use rockbot_testkit::documented_output::{assert_output, sample};
use serde_json::json;

use crate::{
    agents::use_demo_script,
    fleet::Fleet,
    process::Running,
    site::{Reply, Site},
    web::{SEARCH, web_handler},
};

#[tokio::test]
async fn doctor_prints_the_sample_of_the_readme() {
    let fleet = Fleet::new();
    let mut handler = fleet.program("rockbot-tool-handler");
    handler.env("ROCKBOT_FILES__ROOT", fleet.path(""));
    let mut agent = fleet.program("rockbot-agent");
    use_demo_script(&mut agent);
    let (mut handler, mut agent) = (Running::start(handler), Running::start(agent));
    handler.expect_log("ready").await;
    agent.expect_log("ready").await;
    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(0);
    assert_output(&sample("README.md", "bus "), &doctor.stdout);
}

#[tokio::test]
async fn configuration_errors_are_those_of_the_samples() {
    let fleet = Fleet::new();
    let mut agent = fleet.program_without_bus("rockbot-agent");
    agent.env("ROCKBOT_BUS__URI", "amqp://broker/%2f").env("ROCKBOT_LLM__MODEL", "5");
    let refused = Running::start(agent).wait().await;
    refused.assert_code(64);
    assert_output(&sample("docs/configuration.md", "rockbot-agent: "), &refused.stderr);

    let server = json!({"url": "https://api.githubcopilot.com/mcp/", "exposure": "always"});
    fleet.write("mcp.json", &json!({"mcpServers": {"github": server}}).to_string());
    let mut bridge = fleet.program("rockbot-mcp-bridge");
    bridge.arg("--check-config").env("ROCKBOT_MCP__CONFIG", "mcp.json");
    let refused = Running::start(bridge).wait().await;
    refused.assert_code(64);
    assert_output(&sample("docs/mcp.md", "rockbot-mcp-bridge: "), &refused.stderr);
}

#[tokio::test]
async fn recorded_events_are_those_of_the_sample() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "The bus carries each call.");
    let _handler = fleet.handler("handler-1").await;
    let mut watch = fleet.start(&["watch", "--calls", "1"]);
    watch.expect_log("watching").await;
    fleet.run(&["tools", "call", "read_file", "path=notes.md"]).await.assert_code(0);
    let events = watch.wait().await;
    events.assert_code(0);
    assert_output(&sample("docs/watch.md", r#"{"agent""#), &events.stdout);
}

#[tokio::test]
async fn handle_of_large_result_is_that_of_the_sample() {
    let fleet = Fleet::new();
    let output =
        [("ROCKBOT_FILES__MAX_OUTPUT_BYTES", "16777216"), ("ROCKBOT_OUTPUTS__STORE_TIMEOUT", "1m")];
    let _handler = fleet.handler_with("handler-1", &output).await;
    let lines: String = (0..110_000).map(|number| format!("line {number}\n")).collect();
    fleet.write("report.md", &lines);
    let called = fleet.run(&["tools", "call", "bash", "command=cat report.md"]).await;
    called.assert_code(0);
    let documented = sample("docs/tools.md", r#"{"tool_output""#);
    assert_output(documented.trim_end(), called.stdout.lines().next().unwrap_or_default());
}

#[tokio::test]
async fn search_results_and_pages_are_those_of_the_samples() {
    let found = json!({"query": {"original": "rust async book"}, "web": {"results": [
        {"title": "Asynchronous Programming in Rust", "url": "https://rust-lang.github.io/async-book/",
            "description": "A guide to async programming.", "age": "3 days ago"},
        {"title": "docs.rs", "url": "https://docs.rs/tokio", "description": "A runtime for programs."}]}});
    let page = format!(
        "<title>The title</title><main><h1>The heading</h1><p>{}</p></main>",
        "Some words. ".repeat(100_000)
    );
    let site = Site::start([
        (SEARCH, vec![Reply::json(&found)]),
        ("/page", vec![Reply::ok("text/html", page)]),
    ])
    .await;
    let fleet = Fleet::new();
    let _handler = web_handler(&fleet, &site).await;
    let search = fleet.run(&["tools", "call", "web_search", "query=rust async book"]).await;
    search.assert_code(0);
    assert_output(&sample("docs/web.md", "2 results"), &search.stdout);

    let url = site.url("/page");
    let page = fleet.run(&["tools", "call", "web_browse", &format!("url={url}")]).await;
    page.assert_code(0);
    let page = page.stdout.replace(&url, "https://example.com/the/final/address");
    assert_output(&sample("docs/web.md", "Page: "), &page);
}
