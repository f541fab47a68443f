//! `rockbot mcp` and `/prompt` with servers of one process.

use std::process::Command;

use rockbot_testkit::{
    broker::free_port,
    mcp_servers::{HttpPeer, RunningHttpPeer},
};
use serde_json::{Value, json};

use crate::{
    pseudo_terminal::Terminal,
    sandbox::{CommandOutput, Sandbox, TIMEOUT, assert_contains},
};

/// A model that repeats its first message.
const SCRIPT: &str = "[[turn]]\nwhen = \"Write about Emma\"\ntext = \"A review of Emma.\"\n";

/// Creates a sandbox with a server that has resources and prompts, and one that cannot be started.
fn library() -> Sandbox {
    let sandbox = Sandbox::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp-bridge/tests/it/servers/library.py");
    let servers = json!({"mcpServers": {
        "Library": {"command": "python3", "args": [script]},
        "down": {"command": "/no/such/program"},
        "broken": {"command": "x", "url": "https://x"},
    }});
    sandbox.write("mcp.json", &servers.to_string());
    sandbox
}

fn check(sandbox: &Sandbox, arguments: &[&str]) -> CommandOutput {
    sandbox.check(&[&["--mcp", "mcp.json"], arguments].concat(), 0)
}

#[test]
fn every_server_is_listed_with_its_state() {
    let sandbox = library();
    let listed = check(&sandbox, &["--json", "mcp", "list"]).json();
    let states: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|server| (server["name"].clone(), server["states"][0].clone()))
        .collect();
    let names: Vec<_> = states.iter().map(|(name, state)| (name, &state["connection"])).collect();
    let expected = [
        (json!("broken"), json!("invalid")),
        (json!("down"), json!("failed")),
        (json!("Library"), json!("connected")),
    ];
    assert_eq!(names, expected.each_ref().map(|(name, state)| (name, state)));
    let reason = states[1].1["reason"].as_str().expect("a reason");
    assert!(reason.contains("cannot start its program"), "{reason}");
    assert_eq!(states[2].1["toolsOffered"], 3);
    assert_eq!(states[2].1["bridge"], Value::Null);
    let table = check(&sandbox, &["mcp", "list"]).out;
    assert_contains(&table, &["STATE", "connected", "failed", "invalid", "cannot start"]);
}

#[test]
fn request_to_a_failed_server_fails_with_its_reason() {
    let sandbox = library();
    let all = |arguments: &[&str]| sandbox.check(&[&["--mcp", "mcp.json"], arguments].concat(), 69);
    for arguments in [
        &["mcp", "describe", "Down"][..],
        &["mcp", "call", "down", "anything"],
        &["mcp", "resources", "down"],
        &["mcp", "read", "down", "x://1"],
        &["mcp", "prompt", "down"],
        &["mcp", "prompt", "down", "any"],
    ] {
        let failed = all(arguments);
        assert_contains(&failed.err, &["down", "is not connected", "/no/such/program", "correct"]);
    }
    for arguments in [&["mcp", "describe", "broken"][..], &["mcp", "call", "broken", "anything"]] {
        assert_contains(&all(arguments).err, &["broken is invalid", "both a command and a url"]);
    }
    assert_contains(&all(&["mcp", "describe", "absent"]).err, &["no server \"absent\""]);
}

#[test]
fn server_on_this_machine_needs_no_permission() {
    let sandbox = Sandbox::new();
    let server = RunningHttpPeer::start(HttpPeer::EverythingStreamable);
    for url in [server.url().to_owned(), server.url().replace("127.0.0.1", "localhost")] {
        let servers = json!({"mcpServers": {"everything": {"url": url}}});
        sandbox.write("mcp.json", &servers.to_string());
        let checked = sandbox.check(&["mcp", "check", "mcp.json"], 0);
        assert_contains(&checked.out, &["everything", "ready"]);
    }
}

#[test]
fn pipe_or_device_is_no_servers_file() {
    let sandbox = Sandbox::new();
    let pipe = sandbox.root().join("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for file in ["pipe.json", "/dev/zero"] {
        for arguments in [
            &["mcp", "check", file][..],
            &["--mcp", file, "mcp", "list"],
            &["--mcp", file, "--check-config"],
            &["mcp", "add", "one", "--into", file, "--yes", "--", "true"],
            &["mcp", "import", file, "--into", "new.json"],
        ] {
            let output = sandbox.run(arguments);
            assert_ne!(output.code, Some(0), "{arguments:?}: {output:?}");
            let shown = format!("{}{}", output.out, output.err);
            assert!(shown.contains("it is not a regular file"), "{arguments:?}: {shown}");
        }
    }
}

#[test]
fn refused_server_is_reported_in_words() {
    let sandbox = Sandbox::new();
    let port = free_port().expect("a free port");
    let url = format!("http://127.0.0.1:{port}/mcp");
    sandbox.write("mcp.json", &json!({"mcpServers": {"gone": {"url": url}}}).to_string());
    let listed = check(&sandbox, &["mcp", "list"]);
    assert_contains(&listed.out, &["gone", "failed"]);
    for name in ["Transport", "reqwest::", "https"] {
        assert!(!listed.err.contains(name) && !listed.out.contains(name), "{name}:\n{listed:?}");
    }
}

#[test]
fn resources_and_prompts_are_shown() {
    let sandbox = library();
    let listed = check(&sandbox, &["mcp", "resources", "library"]).out;
    assert_contains(&listed, &["books://0", "books://2", "book 1", "7 B"]);
    let templates = check(&sandbox, &["mcp", "resources", "library", "--templates"]).out;
    assert_contains(&templates, &["books://{number}"]);
    assert_eq!(check(&sandbox, &["mcp", "read", "library", "books://1"]).out, "text of books://1");
    let missing = sandbox.check(&["--mcp", "mcp.json", "mcp", "read", "library", "x://1"], 69);
    assert_contains(&missing.err, &["no resource x://1"]);
    let prompts = check(&sandbox, &["mcp", "prompt", "library"]).out;
    assert_contains(&prompts, &["summary", "review", "title", "Reviews a book."]);
    let review = ["mcp", "prompt", "library", "review", "title=Emma"];
    assert_eq!(check(&sandbox, &review).out, "Write about Emma.\n");
}

#[test]
fn entries_that_are_left_out_are_counted() {
    let sandbox = Sandbox::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp-bridge/tests/it/servers/library.py");
    let servers =
        json!({"mcpServers": {"Library": {"command": "python3", "args": [script, "odd"]}}});
    sandbox.write("mcp.json", &servers.to_string());
    let prompts = check(&sandbox, &["mcp", "prompt", "library"]);
    assert_contains(&prompts.out, &["review", "prompt0"]);
    assert_contains(&prompts.err, &["of Library, 16 prompts are left out"]);
    let resources = check(&sandbox, &["mcp", "resources", "library"]);
    assert_contains(&resources.out, &["books://0", "books://2"]);
    assert_contains(&resources.err, &["1 entry is left out"]);
}

#[test]
fn prompt_is_sent_as_a_message() {
    let sandbox = library();
    let script = sandbox.write("script.toml", SCRIPT).display().to_string();
    let mut command = sandbox.command(&["--mcp", "mcp.json", "chat"]);
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let input = "/prompt\n/prompt library nothing here\n/prompt library review title=Emma\n";
    let output = command.write_stdin(input).timeout(TIMEOUT).output().expect("it runs");
    let output = CommandOutput::new(output);
    output.assert_code(0, &["chat"]);
    assert_contains(&output.err, &["Reviews a book.", "/prompt SERVER PROMPT", "NAME=VALUE"]);
    assert_contains(&output.err, &["the server wrote this message", "  │ Write about Emma."]);
    assert_contains(&output.out, &["A review of Emma."]);
}

#[test]
fn prompt_is_sent_only_when_confirmed_at_the_terminal() {
    let sandbox = library();
    let script = sandbox.write("script.toml", SCRIPT).display().to_string();
    let mut command = sandbox.std_command(&["--mcp", "mcp.json", "chat"]);
    command
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script)
        .env("HOME", sandbox.temporary());
    let mut terminal = Terminal::start(command);
    for (typed, expected) in [("n", "not sent"), ("what?\ry", "A review of Emma.")] {
        terminal.wait_for("you ");
        // Hidden characters of an argument, which the server repeats, are not sent.
        terminal.type_text("/prompt library review title=Em\u{200b}ma\r");
        terminal.wait_for("│ Write about Emma.");
        terminal.wait_for("send it?");
        terminal.type_text(&format!("{typed}\r"));
        terminal.wait_for(expected);
    }
    terminal.wait_for("you ");
    terminal.type_text("\u{4}");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(shown.matches("A review of Emma.").count(), 1, "{shown}");
}
