//! `rockbot chat` with a small real language model.

use serde_json::Value;

use crate::{fleet::Fleet, http, process::Running};

/// The documented agent, whose prompt and tools fit a context of 4096 tokens.
const AGENT: &str = include_str!("../../../examples/local-model/reader.md");

const PROMPT: &str = r#"Call read_file with {"path": "notes.md"}"#;

/// Attempts with a new conversation; the client itself retries failed requests.
const ATTEMPTS: usize = 3;

#[tokio::test]
async fn real_model_calls_tool_and_reads_result() {
    let base_url = http::server("ROCKBOT_TEST_SMOLLM2_URL");
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let (code, events) = chat(&base_url).await;
        // The chat ends with an answer for any behavior of the model.
        let last = events.last().expect("an answer");
        assert_eq!(last["kind"], "answer", "{events:#?}");
        assert!(matches!(code, Some(0 | 69)), "exit code {code:?}: {events:#?}");
        if code == Some(0) && events.iter().any(is_remote_call) {
            return;
        }
        seen.push(events);
    }
    panic!("no tool call crossed the bus in {ATTEMPTS} conversations: {seen:#?}");
}

/// Returns whether the event is a call of an offered tool that a handler ran.
fn is_remote_call(event: &Value) -> bool {
    let is_offered = event["toolName"] == "read_file" || event["toolName"] == "edit_file";
    event["kind"] == "tool_finished"
        && is_offered
        && event["executed"] == "yes"
        && event["ranOn"].as_str().is_some_and(|handler| handler.starts_with("tool-handler/"))
}

async fn chat(base_url: &str) -> (Option<i32>, Vec<Value>) {
    let fleet = Fleet::new();
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    fleet.write("agents/reader.md", AGENT);
    let lines: Vec<_> = (1..=8).map(|line| format!("Line {line}: a heron stands there.")).collect();
    fleet.write("notes.md", &lines.join("\n"));
    let mut command = fleet.program_without_bus("rockbot");
    command
        .args(["chat", "--json", "--agent", "reader", PROMPT])
        .env("ROCKBOT_AGENT__DIRECTORY", fleet.path("agents"))
        .env("OPENAI_BASE_URL", base_url)
        .env("OPENAI_MODEL", "smollm2-135m-instruct");
    let exit = Running::start(command).wait().await;
    let events = exit.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    (exit.code, events.collect())
}
