//! Guides that handlers, bridges and workers announce, and agents offer.

use rockbot_testkit::mcp_servers::McpPeer;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
    workers::PYTHON,
};

/// Script of a model that lists the guides and reads those of a handler, a worker and a server.
const READS_GUIDES: &str = r#"
[[turn]]
[[turn.call]]
name = "list_tool_guides"
arguments = {}
[[turn.call]]
name = "get_tool_guide"
arguments = { name = "files-and-shell" }
[[turn.call]]
name = "get_tool_guide"
arguments = { name = "tables" }
[[turn.call]]
name = "get_tool_guide"
arguments = { name = "mcp-Everything" }
[[turn]]
text = """
{{result.0}}
{{result.1}}
{{result.2}}
{{result.3}}
"""
"#;

#[tokio::test]
async fn agent_offers_guides_of_handler_worker_and_server() {
    let fleet = Fleet::new();
    fleet.write("script.toml", READS_GUIDES);
    let (program, arguments) = McpPeer::Everything.command();
    let servers = json!({"Everything": {"command": program, "args": arguments}});
    let _bridge = fleet.bridge("bridge-1", &servers).await;
    let _handler = fleet.handler("handler-1").await;
    let mut worker = PYTHON.start(&fleet);
    worker.expect_log("ready").await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", fleet.path("script.toml"));
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;

    // The agent discovers the server shortly after it is ready.
    let mut chat = fleet.run(&["chat", "Which guides are there?"]).await;
    for _ in 0..20 {
        let read = ["Guide on the tools of MCP server", "Guide on the tools of tables"];
        if read.iter().all(|guide| chat.stdout.contains(guide)) {
            break;
        }
        chat = fleet.run(&["chat", "Which guides are there?"]).await;
    }
    chat.assert_code(0);
    assert_contains(
        &chat.stdout,
        &[
            "- files-and-shell: Reading, searching and changing files",
            "- tables: Queries over tables in CSV",
            "- mcp-Everything: Instructions of the MCP server Everything",
            "Guide on the tools of files, written by their tool handler, between the marks.",
            "Guide on the tools of tables, written by the tool handler of pool tables, between",
            "The table is called `data`.",
            "Guide on the tools of MCP server Everything, written by that server, between",
        ],
    );
    assert!(!chat.stdout.contains("- web: "), "no handler has web tools:\n{}", chat.stdout);

    // The guide leaves with its worker.
    worker.send(Signal::TERM);
    worker.wait().await.assert_code(0);
    let listed = async || fleet.run(&["chat", "Which guides are there now?"]).await.stdout;
    let mut text = listed().await;
    for _ in 0..20 {
        if !text.contains("- tables: ") {
            break;
        }
        text = listed().await;
    }
    assert!(!text.contains("- tables: "), "{text}");
    agent.send(Signal::TERM);
    agent.wait().await.assert_code(0);
}
