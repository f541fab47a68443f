//! `rockbot tools approve`, and approval prompts in `rockbot chat`.

use std::path::Path;

use rockbot_contracts::{AgentName, ToolHints, ToolRegistration, ToolSource};
use rockbot_store::{Clock, StoreUrl};
use rockbot_tools::{PinnedDefinition, PinnedTool, ToolPins};
use serde_json::json;

use crate::{
    pseudo_terminal::Terminal,
    sandbox::{CommandOutput, Sandbox, TIMEOUT, assert_contains},
};

const SCRIPT: &str = r#"
[[turn]]

[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says: {{result.read_file}}"
"#;

/// Records the descriptions that an agent in another process observes of a tool, in this order.
async fn observe(store: &Path, tool: &str, descriptions: &[&str]) {
    let url = StoreUrl::Sqlite(store.to_owned());
    let store = rockbot_store_sql::connect(&url, Clock::System).await.unwrap();
    let pins = ToolPins::new(store.clone(), AgentName::new("assistant").unwrap());
    for description in descriptions {
        let definition = PinnedDefinition::from_registration(&ToolRegistration {
            name: tool.to_owned(),
            label: None,
            description: (*description).to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Files,
            hints: ToolHints::default(),
            timeout_ms: None,
        });
        let place = PinnedTool::HANDLERS;
        let pinned =
            PinnedTool { namespace: place, tool, source: "files", name: tool, invoke_key: None };
        pins.is_trusted(pinned, &definition.fingerprint, || definition.clone()).await.unwrap();
    }
    store.close().await;
}

struct PinsFixture {
    sandbox: Sandbox,
    url: String,
}

impl PinsFixture {
    fn run(&self, arguments: &[&str], code: i32) -> CommandOutput {
        let mut command = self.sandbox.command(&[&["tools", "approve"], arguments].concat());
        command.env("ROCKBOT_PINS__STORE", &self.url).timeout(TIMEOUT);
        let output = CommandOutput::new(command.output().unwrap());
        output.assert_code(code, arguments);
        output
    }
}

#[tokio::test]
async fn changed_definition_is_shown_and_approved() {
    let sandbox = Sandbox::new();
    let store = sandbox.root().join("pins.db");
    observe(&store, "read", &["Reads.", "Reads,\u{1b}[2J and reports."]).await;
    observe(&store, "write", &["Writes.", "Writes more."]).await;
    observe(&store, "list", &["Lists."]).await;
    let pinned = PinsFixture { sandbox, url: format!("sqlite:{}", store.display()) };

    let output = pinned.run(&["--list"], 0);
    let change = ["read of files", "- Reads.", "+ Reads,\\u{1b}[2J and rep", "write of files"];
    assert_contains(&output.out, &change);
    assert!(!output.out.contains("list") && !output.out.contains('\u{1b}'), "{}", output.out);

    assert_contains(&pinned.run(&["read"], 0).out, &["+ Reads,", "approved read"]);
    let left = pinned.run(&["--list", "--json"], 0).json();
    assert_eq!((left["pending"].as_array().unwrap().len(), &left["approved"]), (1, &json!([])));
    assert_eq!(left["pending"][0]["name"], "write");
    assert_contains(&pinned.run(&["read"], 1).err, &["tool read has no pending change"]);

    assert_eq!(pinned.run(&["--all", "--json"], 0).json()["approved"], json!(["write"]));
    assert_contains(&pinned.run(&["--list"], 0).out, &["no tool has a pending change"]);
}

#[test]
fn approval_requires_store_and_name() {
    let sandbox = Sandbox::new();
    assert_contains(&sandbox.check(&["tools", "approve", "x"], 64).err, &["pins.store is not set"]);
    sandbox.check(&["tools", "approve"], 64);
    sandbox.check(&["tools", "approve", "x", "--all"], 64);
}

/// Returns a `rockbot chat` command in which every call needs an approval.
fn chat(sandbox: &Sandbox) -> std::process::Command {
    sandbox.write("notes.md", "buy milk\n");
    let script = sandbox.write("script.toml", SCRIPT);
    let mut command = sandbox.std_command(&["chat", "read my notes"]);
    command
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script)
        .env("ROCKBOT_APPROVAL__POLICY", "ask");
    command
}

#[test]
fn typed_decision_controls_call() {
    for (typed, result) in [
        ("y\n", "It says: buy milk"),
        ("what?\nALWAYS\n", "It says: buy milk"),
        ("n\n", "the user denied this call"),
    ] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::start(chat(&sandbox));
        terminal.wait_for("run it?");
        terminal.type_text(typed);
        let (shown, code) = terminal.finish();
        assert_eq!(code, Some(0), "{shown}");
        let prompt = "assistant wants to call read_file (files)";
        assert_contains(&shown, &[prompt, "path: notes.md", "run it?", " s): ", result]);
    }
}

#[test]
fn input_before_the_prompt_decides_nothing() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(chat(&sandbox));
    terminal.type_text("y\n");
    terminal.wait_for("run it?");
    terminal.type_text("n\n");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["the user denied this call"]);
}

#[test]
fn reason_of_denial_reaches_the_model() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(chat(&sandbox));
    terminal.wait_for("run it?");
    terminal.type_text("n read todo.md instead\n");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["Their reason: read todo.md instead"]);
}

#[test]
fn interrupt_at_the_prompt_cancels_the_turn() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(chat(&sandbox));
    terminal.wait_for("run it?");
    terminal.type_text("\u{3}");
    terminal.wait_for("cancelling");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(1), "{shown}");
    assert!(!shown.contains("buy milk"), "{shown}");
}

#[test]
fn edit_is_shown_as_diff() {
    let sandbox = Sandbox::new();
    let mut command = chat(&sandbox);
    let script = r#"
[[turn]]

[[turn.call]]
name = "write_file"
arguments = { path = "notes.md", content = "buy bread\n" }

[[turn]]
text = "Done."
"#;
    sandbox.write("script.toml", script);
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::start(command);
    terminal.wait_for("run it?");
    terminal.type_text("y\n");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["path: notes.md", "- buy milk", "+ buy bread", "Done."]);
    let written = std::fs::read_to_string(sandbox.root().join("notes.md")).unwrap();
    assert_eq!(written, "buy bread\n");
}

#[test]
fn call_is_denied_without_terminal() {
    let sandbox = Sandbox::new();
    let output = CommandOutput::new(chat(&sandbox).output().unwrap());
    output.assert_code(0, &["chat"]);
    assert_contains(&output.out, &["the user denied this call"]);
    assert_contains(&output.err, &["wants to call read_file", "approval needs a terminal"]);
}
