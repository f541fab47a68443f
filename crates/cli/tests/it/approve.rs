//! `rockbot tools approve`, and what a person at a terminal is asked.

use std::path::Path;

use rockbot_contracts::{AgentName, ToolHints, ToolRegistration, ToolSource};
use rockbot_store::{Clock, StoreUrl};
use rockbot_tools::{PinnedDefinition, PinnedTool, ToolPins};
use serde_json::json;

use crate::{
    pseudo_terminal,
    workshop::{PATIENCE, Said, Workshop, assert_says},
};

const SCRIPT: &str = r#"
[[turn]]

[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says: {{result.read_file}}"
"#;

/// What an agent in another process sees of a tool: these descriptions, one after the other.
async fn seen(store: &Path, tool: &str, descriptions: &[&str]) {
    let url = StoreUrl::Sqlite(store.to_owned());
    let store = rockbot_store_sql::connect(&url, Clock::System).await.unwrap();
    let pins = ToolPins::new(store.clone(), AgentName::new("assistant").unwrap());
    for description in descriptions {
        let definition = PinnedDefinition::of(&ToolRegistration {
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
        let name = PinnedTool { place, tool, source: "files", name: tool };
        pins.trusts(name, &definition.fingerprint, || definition.clone()).await.unwrap();
    }
    store.close().await;
}

struct Pinned {
    workshop: Workshop,
    url: String,
}

impl Pinned {
    fn run(&self, arguments: &[&str], code: i32) -> Said {
        let mut command = self.workshop.command(&[&["tools", "approve"], arguments].concat());
        command.env("ROCKBOT_PINS__STORE", &self.url).timeout(PATIENCE);
        let said = Said::of(command.output().unwrap());
        said.assert_code(code, arguments);
        said
    }
}

#[tokio::test]
async fn what_changed_is_shown_and_that_alone_is_approved() {
    let workshop = Workshop::new();
    let store = workshop.root().join("pins.db");
    seen(&store, "read", &["Reads.", "Reads,\u{1b}[2J and tells others."]).await;
    seen(&store, "write", &["Writes.", "Writes more."]).await;
    seen(&store, "list", &["Lists."]).await;
    let pinned = Pinned { workshop, url: format!("sqlite:{}", store.display()) };

    let said = pinned.run(&["--list"], 0);
    let change = ["read of files", "- Reads.", "+ Reads,\\u{1b}[2J and tells", "write of files"];
    assert_says(&said.out, &change);
    assert!(!said.out.contains("list") && !said.out.contains('\u{1b}'), "{}", said.out);

    assert_says(&pinned.run(&["read"], 0).out, &["+ Reads,", "approved read"]);
    let left = pinned.run(&["--list", "--json"], 0).json();
    assert_eq!((left["waiting"].as_array().unwrap().len(), &left["approved"]), (1, &json!([])));
    assert_eq!(left["waiting"][0]["name"], "write");
    assert_says(&pinned.run(&["read"], 1).err, &["read does not wait for an approval"]);

    assert_eq!(pinned.run(&["--all", "--json"], 0).json()["approved"], json!(["write"]));
    assert_says(&pinned.run(&["--list"], 0).out, &["No tool waits"]);
}

#[test]
fn approving_needs_a_store_and_a_name() {
    let workshop = Workshop::new();
    assert_says(&workshop.check(&["tools", "approve", "x"], 64).err, &["pins.store is not set"]);
    workshop.check(&["tools", "approve"], 64);
    workshop.check(&["tools", "approve", "x", "--all"], 64);
}

/// `rockbot chat` where every call needs a person's word.
fn chat(workshop: &Workshop) -> std::process::Command {
    workshop.write("notes.md", "buy milk\n");
    let script = workshop.write("script.toml", SCRIPT);
    let mut command = workshop.std_command(&["chat", "read my notes"]);
    command
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script)
        .env("ROCKBOT_APPROVAL__POLICY", "ask");
    command
}

#[test]
fn a_person_at_a_terminal_is_asked_and_the_word_counts() {
    for (typed, told) in [
        ("y\n", "It says: buy milk"),
        ("what?\nALWAYS\n", "It says: buy milk"),
        ("n\n", "the user refused this call"),
    ] {
        let workshop = Workshop::new();
        let (shown, code) = pseudo_terminal::show_typing(chat(&workshop), typed);
        assert_eq!(code, Some(0), "{shown}");
        let question = "assistant wants to call read_file (files)";
        assert_says(&shown, &[question, r#"{"path":"notes.md"}"#, "run it?", told]);
    }
}

#[test]
fn without_a_terminal_nobody_is_asked_and_nothing_runs() {
    let workshop = Workshop::new();
    let said = Said::of(chat(&workshop).output().unwrap());
    said.assert_code(0, &["chat"]);
    assert_says(&said.out, &["the user refused this call"]);
    assert_says(&said.err, &["wants to call read_file", "nobody is at a terminal"]);
}
