//! A model server with fixed responses, and requests to it.

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, assert_contains},
    process::{Exit, Running},
    site::{Reply, Site},
};

pub(crate) const COMPLETIONS: &str = "/v1/chat/completions";

/// Returns the streamed response of a model server with one choice.
fn streamed(delta: &Value, finish_reason: &str) -> Reply {
    let chunk = |delta: &Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"id": "c", "model": "eyes", "choices": [choice]}))
    };
    let chunks = [chunk(delta, None), chunk(&json!({}), Some(finish_reason))].concat();
    Reply::ok("text/event-stream", chunks + "data: [DONE]\n\n")
}

/// Returns the response that calls these tools.
pub(crate) fn calls<const N: usize>(tools: [(&str, Value); N]) -> Reply {
    let calls = (0..).zip(tools).map(|(index, (name, arguments))| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function})
    });
    let calls: Vec<Value> = calls.collect();
    streamed(&json!({"role": "assistant", "tool_calls": calls}), "tool_calls")
}

/// Returns the response with this text.
pub(crate) fn answer(text: &str) -> Reply {
    streamed(&json!({"role": "assistant", "content": text}), "stop")
}

/// Runs `rockbot chat` with an embedded fleet and this model.
async fn chat(fleet: &Fleet, model: &str, server: &Site) -> Exit {
    let mut command = fleet.program_without_bus("rockbot");
    if fleet.path("rockbot.toml").exists() {
        command.args(["--config", "rockbot.toml"]);
    }
    command
        .args(["chat", "Please do it."])
        .env("OPENAI_BASE_URL", server.url("/v1"))
        .env("OPENAI_MODEL", model)
        .env("OPENAI_API_KEY", "sk-of-this-test");
    let exit = Running::start(command).wait().await;
    exit.assert_code(0);
    exit
}

/// Returns the contents of the messages with a role in a request.
fn contents(request: &Value, role: &str) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages").iter();
    let messages = messages.filter(|message| message["role"] == role);
    messages.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn call_in_the_text_of_an_answer_runs() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    fleet.write("rockbot.toml", "[models.\"plain\"]\ntool_calls = \"text\"\n");
    let call = r#"I look.
<tool_call>
{"name": "read_file", "arguments": {"path": "notes.md"}}
</tool_call>"#;
    let server = Site::start([(COMPLETIONS, vec![answer(call), answer("Buy milk.")])]).await;
    let chat = chat(&fleet, "plain", &server).await;
    assert_contains(&chat.stdout, &["I look.", "← read_file ran on tool-handler/", "Buy milk."]);
    assert!(!chat.stdout.contains("<tool_call>"), "{}", chat.stdout);

    let requests = server.requests(COMPLETIONS);
    let [first, second] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    let (first, second) = (first.json(), second.json());
    assert!(first["tools"].is_null(), "{}", first["tools"]);
    assert_contains(&contents(&first, "system")[0], &["read_file", "list_files"]);
    assert_contains(contents(&second, "user").last().expect("the result"), &["buy milk"]);
    assert_eq!(contents(&second, "tool"), [""; 0]);
}

/// Returns the result of `read_file` of a file with 40,000 characters, as the model gets it.
async fn shown_result(model: &str) -> String {
    let fleet = Fleet::new();
    fleet.write("long.md", &"A line of the long file.\n".repeat(1_600));
    // So that the definitions of tools take little of a small window.
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    let definition = "+++\n[tools]\nallow = [\"read_file\"]\n+++\nRead the file.\n";
    fleet.write("agents/assistant.md", definition);
    fleet.write("rockbot.toml", "[agent]\ndirectory = \"agents\"\n");
    let read = calls([("read_file", json!({"path": "long.md"}))]);
    let server = Site::start([(COMPLETIONS, vec![read, answer("Read.")])]).await;
    chat(&fleet, model, &server).await;
    contents(&server.requests(COMPLETIONS)[1].json(), "tool").concat()
}

#[tokio::test]
async fn shown_results_fit_the_window_of_the_models_family() {
    let (small, large) = tokio::join!(shown_result("gpt-3.5-turbo"), shown_result("gpt-4o"));
    assert_contains(&small, &["[result truncated — ", " chars omitted]"]);
    assert!(small.len() < 20_000, "{small}");
    assert!(large.matches("A line of the long file.").count() == 1_600, "{large}");
}

#[tokio::test]
async fn call_of_another_agent_names_its_conversation() {
    let fleet = Fleet::new();
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    fleet.write("agents/helper.md", "+++\ndescription = \"Helps.\"\n+++\nBe of use.\n");
    fleet.write("rockbot.toml", "[agent]\ndirectory = \"agents\"\n");
    let call = calls([("agent__helper", json!({"message": "Help."}))]);
    let server =
        Site::start([(COMPLETIONS, vec![call, answer("Helped."), answer("It helped.")])]).await;
    let chat = chat(&fleet, "gpt-4o", &server).await;
    let line = chat.stdout.lines().find(|line| line.contains("← agent__helper"));
    assert_contains(line.expect("the end of the call"), &["ran in the agent", ", conversation "]);
    assert_contains(&chat.stdout, &["It helped."]);
}
