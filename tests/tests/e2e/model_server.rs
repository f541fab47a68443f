//! A model server with fixed responses, and requests to it.

use futures_util::{StreamExt, stream};
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
pub(crate) async fn chat(fleet: &Fleet, model: &str, server: &Site) -> Exit {
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
pub(crate) fn contents(request: &Value, role: &str) -> Vec<String> {
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

/// Forms of calls in text, each with the text that marks it.
const FORMS: [(&str, &str); 8] = [
    (
        r#"<tool_call>{"name": "read_file", "arguments": {"path": "notes.md"}}</tool_call>"#,
        "<tool_call>",
    ),
    (
        "<tool_call>\n<function=read_file>\n<parameter=path>\nnotes.md\n</parameter>\n</function>\n</tool_call>",
        "<function=",
    ),
    (
        "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>notes.md</arg_value>\n</tool_call>",
        "<arg_key>",
    ),
    (
        r#"<|python_tag|>{"name": "read_file", "parameters": {"path": "notes.md"}}<|eom_id|>"#,
        "python_tag",
    ),
    (r#"[TOOL_CALLS] [{"name": "read_file", "arguments": {"path": "notes.md"}}]"#, "[TOOL_CALLS]"),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n\
         {\"path\": \"notes.md\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "tool▁sep",
    ),
    ("```json\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"notes.md\"}}\n```", "```"),
    (
        "<function_calls>\n<invoke name=\"read_file\">\n<parameter name=\"path\">notes.md</parameter>\n\
         </invoke>\n</function_calls>",
        "<invoke",
    ),
];

/// Checks a turn whose model writes a call of `read_file` into its text.
async fn check_form((call, mark): (&str, &str)) {
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    fleet.write("rockbot.toml", "[models.\"plain\"]\ntool_calls = \"text\"\n");
    let server = Site::start([(COMPLETIONS, vec![answer(call), answer("Buy milk.")])]).await;
    let chat = chat(&fleet, "plain", &server).await;
    assert_contains(&chat.stdout, &["← read_file ran on tool-handler/", "Buy milk."]);
    assert!(!chat.stdout.contains(mark), "{}", chat.stdout);
    let requests = server.requests(COMPLETIONS);
    assert_eq!(requests.len(), 2, "{call}");
    assert_contains(
        contents(&requests[1].json(), "user").last().expect("the result"),
        &["buy milk"],
    );
}

#[tokio::test]
async fn calls_in_text_run_in_every_documented_form() {
    stream::iter(FORMS).for_each_concurrent(FORMS.len(), check_form).await;
}

#[tokio::test]
async fn result_beyond_the_configured_window_is_refused() {
    let fleet = Fleet::new();
    std::fs::create_dir(fleet.path("agents")).expect("a folder");
    let definition = "+++\n[tools]\nallow = [\"read_file\"]\n+++\nRead the files.\n";
    fleet.write("agents/assistant.md", definition);
    // The built-in window of this model is 128,000 tokens.
    fleet.write(
        "rockbot.toml",
        "[agent]\ndirectory = \"agents\"\n[models.\"gpt-4o\"]\ncontext_window = 16000\n",
    );
    let files = ["a.md", "b.md", "c.md", "d.md", "e.md"];
    for file in files {
        fleet.write(file, &"A line of the long file.\n".repeat(480));
    }
    let read = calls(files.map(|file| ("read_file", json!({"path": file}))));
    let server = Site::start([(COMPLETIONS, vec![read, answer("I read some.")])]).await;
    let chat = chat(&fleet, "gpt-4o", &server).await;
    assert_contains(&chat.stdout, &["I read some."]);
    let requests = server.requests(COMPLETIONS);
    let [_, last] = requests.as_slice() else { panic!("{} requests", requests.len()) };
    let last = last.json();
    assert_eq!(last["tool_choice"], "none", "the turn ends after it");
    let results = contents(&last, "tool");
    let refused = "(tool failed: context window budget exceeded)";
    let (fit, rest): (Vec<_>, Vec<_>) = results.iter().partition(|result| *result != refused);
    assert!(!fit.is_empty() && !rest.is_empty() && results.len() == 5, "{results:?}");
    assert!(fit.iter().all(|result| result.starts_with("A line of the long file.")), "{fit:?}");
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
