//! Images in the results of tools, on their way to the model server.

use std::time::Duration;

use rockbot_testkit::mcp_servers::McpPeer;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    fleet::{Fleet, assert_contains},
    model_server::{COMPLETIONS, answer, calls},
    process::Running,
    site::{Reply, Site},
    web::web_handler,
};

/// Time in which the agent discovers the tools of a server.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(60);

/// Offers the tools of all MCP servers under their own names.
const DEFINITION: &str = r#"
name = "assistant"
description = "Describes images."
system_prompt = "Describe the images."
[mcp]
exposure = "eager"
"#;

/// Returns the first bytes of a PNG image, and a byte that distinguishes it.
fn png(mark: u8) -> Vec<u8> {
    [&b"\x89PNG\r\n\x1a\n"[..], &[mark; 40]].concat()
}

/// Returns the images in a request to the model server.
fn images(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    let parts = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let images = parts.filter(|part| part["type"] == "image_url");
    images.map(|part| part["image_url"]["url"].as_str().expect("a data URL").to_owned()).collect()
}

/// Runs a turn of an agent with a model that calls `read_file`, `web_browse` and a tool of an MCP server, which
/// all return an image. Returns the images in the request after that, and its tool messages.
async fn images_of_a_turn(reads_images: bool) -> (Vec<String>, String) {
    let fleet = Fleet::new();
    let pages = Site::start([("/chart.png", vec![Reply::ok("image/png", png(b'w'))])]).await;
    std::fs::write(fleet.path("chart.png"), png(b'f')).expect("written");
    let model = Site::start([(
        COMPLETIONS,
        vec![
            calls([
                ("read_file", json!({"path": "chart.png"})),
                ("web_browse", json!({"url": pages.url("/chart.png")})),
                ("Everything__get-tiny-image", json!({})),
            ]),
            answer("Three images."),
        ],
    )])
    .await;
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    fleet.write("agents/assistant.toml", DEFINITION);
    let settings = format!("[models.\"eyes\"]\nimages = {reads_images}\n");
    let config = fleet.write("agent.toml", &settings);
    let (program, arguments) = McpPeer::Everything.command();
    let servers = json!({"Everything": {"command": program, "args": arguments}});
    let _bridge = fleet.bridge("bridge-1", &servers).await;
    let _files = fleet.handler("handler-1").await;
    let _web = web_handler(&fleet, &pages).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .arg("--config")
        .arg(config)
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"))
        .env("ROCKBOT_LLM__BASE_URL", model.url("/v1"))
        .env("ROCKBOT_LLM__MODEL", "eyes")
        .env("ROCKBOT_LLM__API_KEY", "sk-of-this-test");
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;

    // The agent discovers the server shortly after it is ready.
    let expected = ["read_file", "web_browse", "get-tiny-image"];
    let discovered = async {
        loop {
            let offered = fleet.run(&["tools", "list", "--agent", "assistant"]).await.stdout;
            if expected.iter().all(|tool| offered.contains(tool)) {
                break;
            }
        }
    };
    timeout(DISCOVERY_LIMIT, discovered).await.expect("the agent offers the tools in time");
    let chat = fleet.run(&["chat", "What do the three images show?"]).await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["Three images."]);
    let requests = model.requests(COMPLETIONS);
    let [first, second] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    assert_eq!(images(&first.json()), [""; 0]);
    let request = second.json();
    let messages = request["messages"].as_array().expect("messages").iter();
    let results = messages.filter(|message| message["role"] == "tool");
    (images(&request), results.map(ToString::to_string).collect())
}

#[tokio::test]
async fn images_of_files_pages_and_servers_are_content_parts() {
    let (images, results) = images_of_a_turn(true).await;
    let [file, page, server] = images.as_slice() else { panic!("{images:?}\n{results}") };
    for image in [file, page, server] {
        assert!(image.starts_with("data:image/png;base64,iVBORw0KGg"), "{image}");
    }
    // The marks, in base64.
    assert!(file.contains("ZmZmZmZm"), "{file}");
    assert!(page.contains("d3d3d3d3"), "{page}");
    assert!(!results.contains("iVBORw0KGg"), "an image is in a text: {results}");
}

#[tokio::test]
async fn model_without_images_gets_a_note_for_each() {
    let (images, results) = images_of_a_turn(false).await;
    assert_eq!(images, [""; 0]);
    assert_eq!(results.matches("this model reads no images").count(), 3, "{results}");
    assert!(!results.contains("iVBORw0KGg"), "an image is in a text: {results}");
}
