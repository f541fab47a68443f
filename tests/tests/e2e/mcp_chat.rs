//! MCP servers of a running `rockbot chat` without a broker.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::{
    fleet::Fleet,
    mcp_remote::{ENDPOINT, late_clock},
    model_server::{COMPLETIONS, answer, calls, contents},
    site::{Reply, Site},
};

/// Replies as a model that calls the tool of the server as soon as it is offered, and returns its result.
fn reply(request: &Value) -> Reply {
    let messages = request["messages"].as_array().expect("messages");
    let last = messages.last().expect("a message");
    let tools = request["tools"].as_array().expect("tools");
    if last["role"] == "tool" {
        answer(&format!("It is {}.", last["content"].as_str().expect("a text")))
    } else if tools.iter().any(|tool| tool["function"]["name"] == "clock__now") {
        calls([("clock__now", json!({}))])
    } else {
        answer("There is no clock.")
    }
}

#[tokio::test]
async fn later_server_reaches_a_running_chat() {
    let is_up = Arc::new(AtomicBool::new(false));
    let seen = is_up.clone();
    let server = late_clock(move || seen.load(Ordering::Relaxed)).await;
    let fleet = Fleet::new();
    let entry = json!({"url": server.url(ENDPOINT), "exposure": "eager"});
    fleet.write("mcp.json", &json!({"mcpServers": {"clock": entry}}).to_string());
    let model = Site::with_replies(|request, _| reply(&request.json())).await;
    let mut command = fleet.program_without_bus("rockbot");
    command
        .args(["--mcp", "mcp.json", "chat"])
        .env("OPENAI_BASE_URL", model.url("/v1"))
        .env("OPENAI_MODEL", "scripted")
        .env("OPENAI_API_KEY", "sk-of-this-test")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut chat = command.spawn().expect("started");
    let mut input = chat.stdin.take().expect("a pipe");
    let mut output = BufReader::new(chat.stdout.take().expect("a pipe")).lines();
    let mut next_answer = async || {
        input.write_all(b"What time is it?\n").await.expect("sent");
        loop {
            let line = output.next_line().await.expect("output").expect("an answer");
            if line.contains("It is ") || line.contains("There is no clock") {
                return line;
            }
        }
    };
    let first = within_timeout("the first answer", next_answer()).await;
    assert!(first.contains("There is no clock."), "{first}");
    is_up.store(true, Ordering::Relaxed);
    let later = within_timeout("the clock", async {
        loop {
            let answer = next_answer().await;
            if !answer.contains("There is no clock.") {
                return answer;
            }
        }
    });
    let later = later.await;
    assert!(later.contains("It is noon."), "{later}");
    drop(input);
    let status = within_timeout("the end of the chat", chat.wait()).await.expect("a status");
    assert_eq!(status.code(), Some(0));

    // It is one conversation: the request with the tool has the first question and its answer.
    let requests = model.requests(COMPLETIONS);
    let last = requests.last().expect("a request").json();
    assert!(contents(&last, "user").len() > 1, "{last}");
    assert_eq!(contents(&last, "assistant")[0], "There is no clock.");
}
