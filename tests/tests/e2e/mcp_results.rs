//! Results of MCP servers on their way to a model.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, assert_contains},
    model_server::{COMPLETIONS, answer, calls, contents},
    site::{Reply, Site},
    stdio_server,
};

/// Text that would control a terminal, change the text direction, and hide characters.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{202e}h\u{200b}a\u{2066}r\u{feff}m\u{e0041}";

/// Returns whether a model may get this character.
fn is_visible(character: char) -> bool {
    !matches!(character,
        '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns all texts in a JSON document.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(values) => {
            let keys = values.keys().map(String::as_str);
            keys.chain(values.values().flat_map(texts)).collect()
        }
        _ => Vec::new(),
    }
}

/// Replies as a model that calls both tools and repeats nothing of their results.
fn reply(request: &Value) -> Reply {
    let messages = request["messages"].as_array().expect("messages");
    match messages.last().expect("a message")["role"].as_str() {
        Some("tool") => answer("I have read them."),
        _ => calls([("odd__report", json!({})), ("odd__failure", json!({}))]),
    }
}

#[tokio::test]
async fn hidden_characters_of_results_do_not_reach_the_model() {
    let fleet = Fleet::new();
    let mut failure = stdio_server::text(&format!("failure {HOSTILE}"));
    failure["isError"] = json!(true);
    let mut report = stdio_server::text(&format!("report {HOSTILE}"));
    let resource = json!({"uri": "file:///notes", "text": format!("resource {HOSTILE}")});
    let blocks = report["content"].as_array_mut().expect("blocks");
    blocks.push(json!({"type": "resource", "resource": resource}));
    let results = json!({"report": report, "failure": failure});
    let server = stdio_server::entry_with_description(&results, &format!("about {HOSTILE}"));
    let _bridge = fleet.bridge("bridge-1", &json!({"odd": server})).await;

    let model = Site::with_replies(|request, _| reply(&request.json())).await;
    let mut agent = fleet.program("rockbot-agent");
    agent
        .env("ROCKBOT_LLM__PROVIDER", "openai")
        .env("OPENAI_BASE_URL", model.url("/v1"))
        .env("OPENAI_MODEL", "scripted")
        .env("OPENAI_API_KEY", "sk-of-this-test");
    let (agent, chat) = fleet.chat_with(agent).await;
    chat.assert_code(0);
    assert_contains(
        &chat.stdout,
        &["← odd__report ran on mcp-bridge/bridge-1", "I have read them."],
    );

    let requests = model.requests(COMPLETIONS);
    let requests: Vec<_> = requests.iter().map(|request| request.json()).collect();
    let results = contents(requests.last().expect("a request"), "tool").concat();
    // The letters between the hidden characters are there.
    assert_contains(&results, &["report ", "failure ", "resource "]);
    assert_eq!(results.matches("harm").count(), 3, "{results}");
    for request in &requests {
        for text in texts(request) {
            let hidden: Vec<_> = text.chars().filter(|it| !is_visible(*it)).collect();
            assert!(hidden.is_empty(), "{hidden:?} in {text:?}");
        }
    }
    let offered = requests.last().expect("a request")["tools"].to_string();
    assert_contains(&offered, &["about ", "harm"]);
    agent.send(Signal::TERM);
    agent.wait().await.assert_code(0);
}
