//! Forms and links of MCP servers in `rockbot chat`.

use std::{fs, process::Command};

use rockbot_testkit::documented_output::{assert_output, sample};
use serde_json::{Value, json};

use crate::{
    pseudo_terminal::Terminal,
    sandbox::{CommandOutput, Sandbox, assert_contains},
};

const ERAS: [&str; 2] = ["handshake", "stateless"];

fn form() -> Value {
    json!({"mode": "form", "message": "Which\u{1b}[2J color?", "requestedSchema": {
        "type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "green"]},
            "count": {"type": "integer", "default": 2}}}})
}

fn link() -> Value {
    json!({"mode": "url", "message": "Log in", "elicitationId": "1",
        "url": "https://auth.example.com/login"})
}

/// Returns a `rockbot chat` command whose model calls a tool that asks the user, in a server of this era.
fn chat(sandbox: &Sandbox, era: &str, request: &Value) -> Command {
    chat_with(sandbox, "Shop", era, request)
}

/// Returns a `rockbot chat` command whose model calls a tool of the server `name` that asks the user.
fn chat_with(sandbox: &Sandbox, name: &str, era: &str, request: &Value) -> Command {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp-bridge/tests/it/servers/asking.py");
    let servers = json!({"mcpServers": {
        name: {"command": "python3", "args": [server, era], "exposure": "eager"}}});
    let tool = format!("{name}__ask");
    sandbox.write("mcp.json", &servers.to_string());
    let script = json!({"turn": [
        {"call": [{"name": tool, "arguments": request}]},
        {"text": format!("The server got {{{{result.{tool}}}}}")},
    ]});
    let script = sandbox.write("script.toml", &toml::to_string(&script).expect("TOML"));
    let mut command = sandbox.std_command(&["--mcp", "mcp.json", "chat", "ask me"]);
    command
        .env("ROCKBOT_LLM__PROVIDER", "scripted")
        .env("ROCKBOT_LLM__SCRIPT", script)
        .env("NO_COLOR", "1");
    command
}

#[test]
fn typed_values_reach_the_server() {
    for era in ERAS {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::start(chat(&sandbox, era, &form()));
        terminal.wait_for("server Shop asks you");
        terminal.wait_for("answer?");
        terminal.type_text("y\n");
        terminal.wait_for("1. red");
        terminal.wait_for("color (");
        terminal.type_text("blue\n");
        terminal.wait_for("one of the options is needed");
        terminal.wait_for("color (");
        terminal.type_text("2\n");
        terminal.wait_for("count (whole number, default 2");
        terminal.type_text("\n");
        let (shown, code) = terminal.finish();
        assert_eq!(code, Some(0), "{era}: {shown}");
        let got = r#"{"action": "accept", "content": {"color": "green", "count": 2}}"#;
        assert_contains(&shown, &["| Which color?", "type no passwords", got]);
    }
}

#[test]
fn form_is_that_of_the_documents() {
    let request = json!({"mode": "form", "message": "Which branch is the target?",
        "requestedSchema": {"type": "object", "required": ["branch"], "properties": {
            "branch": {"type": "string"}, "draft": {"type": "boolean", "default": false}}}});
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(chat_with(&sandbox, "github", ERAS[0], &request));
    for (prompt, typed) in [("answer?", "y\n"), ("branch (", "main\n"), ("draft (", "\n")] {
        terminal.wait_for(prompt);
        terminal.type_text(typed);
    }
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    let start = shown.find("server github asks you").expect("a form");
    // A line is written again each second.
    let lines = shown[start..].lines().map(|line| line.rsplit("\u{1b}[K").next().unwrap_or(line));
    let documented = sample("docs/mcp.md", "server github asks you");
    let form: Vec<_> = lines.take(documented.lines().count()).collect();
    assert_output(&documented, &form.join("\n"));
}

#[test]
fn link_is_shown_with_its_host() {
    for (typed, action) in [("y\n", "accept"), ("n\n", "decline"), ("c\n", "cancel")] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::start(chat(&sandbox, "handshake", &link()));
        terminal.wait_for("did you open it?");
        terminal.type_text(typed);
        let (shown, code) = terminal.finish();
        assert_eq!(code, Some(0), "{shown}");
        let got = format!(r#"{{"action": "{action}"}}"#);
        let link = ["a page of auth.example.com", "https://auth.example.com/login"];
        assert_contains(&shown, &[link[0], link[1], &got]);
    }
}

#[test]
fn interrupt_at_the_form_cancels_the_turn() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::start(chat(&sandbox, "handshake", &form()));
    terminal.wait_for("answer?");
    terminal.type_text("\u{3}");
    terminal.wait_for("cancelling");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(1), "{shown}");
}

#[test]
fn prompt_ends_with_the_call_that_asked() {
    let sandbox = Sandbox::new();
    let pipe = sandbox.root().join("until");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let mut request = form();
    request["until"] = json!(pipe);
    let mut terminal = Terminal::start(chat(&sandbox, "handshake", &request));
    terminal.wait_for("answer?");
    fs::write(&pipe, "now").expect("written");
    terminal.wait_for("the request is closed");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["The server got \"withdrawn\""]);
}

#[test]
fn server_is_declined_without_a_terminal() {
    for era in ERAS {
        let sandbox = Sandbox::new();
        let output = CommandOutput::new(chat(&sandbox, era, &form()).output().unwrap());
        output.assert_code(0, &["chat"]);
        assert_contains(&output.out, &[r#"The server got {"action": "decline"}"#]);
        assert!(!output.err.contains("asks you"), "{}", output.err);
    }
}
