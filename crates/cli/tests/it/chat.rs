//! `rockbot chat` with an embedded fleet and a scripted model.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use crate::sandbox::{CommandOutput, Sandbox, assert_contains};

const SCRIPT: &str = r#"
[[turn]]
when = "read"
text = "Looking."

[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says: {{result.read_file}}"

[[turn]]
when = "hello"
text = "Hello."

[[turn]]
when = "fail"
text = "Half an answer"
fail = "interrupted"
"#;

/// Creates a sandbox with a model script, and returns the path of the script.
fn scripted(script: &str) -> (Sandbox, String) {
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "buy milk\n");
    let path = sandbox.write("script.toml", script).display().to_string();
    (sandbox, path)
}

fn chat(sandbox: &Sandbox, script: &str, arguments: &[&str], input: &str) -> CommandOutput {
    let mut command = sandbox.command(&[&["chat"], arguments].concat());
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    CommandOutput::new(
        command.write_stdin(input).timeout(crate::sandbox::TIMEOUT).output().expect("runs"),
    )
}

#[test]
fn missing_model_error_lists_alternatives() {
    let output = Sandbox::new().check(&["chat", "hello"], 64);
    let parts = [
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENROUTER_API_KEY",
        "[llm]",
        "base_url",
        "ROCKBOT_LLM__SCRIPT=examples/first-chat.toml",
    ];
    assert_contains(&output.err, &parts);
    assert_eq!(output.out, "");
}

#[test]
fn documented_first_chat_works_without_a_key() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = format!("{root}/examples/first-chat.toml");
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "# Notes\n");
    for (message, expected) in [
        ("Which files are here?", "notes.md"),
        ("Search the files", "notes.md:1: # Notes"),
        ("Remember me", "The first chat worked."),
    ] {
        let output = chat(&sandbox, &script, &[message], "");
        output.assert_code(0, &["chat"]);
        assert_contains(&output.out, &[expected]);
        assert!(!output.out.contains("failed"), "{}", output.out);
    }
}

#[test]
fn answer_contains_tool_results() {
    let (sandbox, script) = scripted(SCRIPT);
    let output = chat(&sandbox, &script, &["read my notes"], "");
    output.assert_code(0, &["chat"]);
    let parts =
        ["Looking.", "→ read_file ", "← read_file ran on tool-handler/", "It says: buy milk"];
    assert_contains(&output.out, &parts);
    assert_contains(&output.err, &["model: the script"]);
}

#[test]
fn small_context_window_is_reported_at_the_start() {
    let (sandbox, script) = scripted(SCRIPT);
    let warning = "the context window is small: of 4096 tokens";
    sandbox.write("small.toml", "[models.\"\"]\ncontext_window = 4096\n");
    let chat = |config: &str| {
        let mut command = sandbox.command(&["--config", config, "chat", "read my notes"]);
        command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", &script);
        CommandOutput::new(command.timeout(crate::sandbox::TIMEOUT).output().expect("it runs"))
    };
    let small = chat("small.toml");
    assert_contains(&small.err, &[warning, "set context_window of [models]"]);
    sandbox.write("large.toml", "[models.\"\"]\ncontext_window = 64000\n");
    let large = chat("large.toml");
    large.assert_code(0, &["chat"]);
    assert!(!large.err.contains("context window"), "{}", large.err);
}

#[test]
fn chat_waits_for_mcp_servers() {
    let script = r#"
[[turn]]
[[turn.call]]
name = "mcp_invoke_tool"
arguments = { server_name = "clock", tool_name = "now", arguments = {} }

[[turn]]
text = "It is {{result.mcp_invoke_tool}}."
"#;
    let (sandbox, script) = scripted(script);
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp-bridge/tests/it/servers/startup.py");
    let started = sandbox.root().join("started");
    let servers = serde_json::json!({"mcpServers": {
        "clock": {"command": "python3", "args": [server, "late", started]},
        "gone": {"command": "no-such-program"},
    }});
    sandbox.write("mcp.json", &servers.to_string());
    let mut command = sandbox.std_command(&["--mcp", "mcp.json", "chat", "what time is it?"]);
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("it starts");
    let notes = BufReader::new(running.stderr.take().expect("a pipe")).lines();
    let mut seen = Vec::new();
    for note in notes.map(|note| note.expect("UTF-8")) {
        if note.contains("waiting for MCP servers: clock") {
            sandbox.write("started", "");
        }
        seen.push(note);
    }
    let output = running.wait_with_output().expect("it ends");
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("It is noon."), "{answer}\n{seen:?}");
    assert!(seen.iter().any(|note| note.contains("MCP server gone is not connected")), "{seen:?}");
}

#[test]
fn stats_show_usage() {
    let (sandbox, script) = scripted(SCRIPT);
    let output = chat(&sandbox, &script, &["--stats", "read my notes"], "");
    output.assert_code(0, &["chat", "--stats"]);
    assert_contains(
        &output.out,
        &["turn          2 model calls", "1 tool call (19 B in", "conversation"],
    );
}

#[test]
fn input_lines_share_one_conversation() {
    let (sandbox, script) = scripted(SCRIPT);
    let output = chat(&sandbox, &script, &[], "hello\n\nread my notes\n");
    output.assert_code(0, &["chat"]);
    let hello = output.out.find("Hello.").expect("the first answer");
    let notes = output.out.find("It says: buy milk").expect("the second answer");
    assert!(hello < notes, "{}", output.out);
}

#[test]
fn failed_command_in_piped_input_sends_nothing_more() {
    let (sandbox, script) = scripted(SCRIPT);
    for (input, problem) in [
        ("/image missing.png\nhello\n", "cannot read the image missing.png"),
        ("/image notes.md\nhello\n", "notes.md is no image"),
        ("/imgae notes.md\nhello\n", "did you mean /image?"),
    ] {
        let output = chat(&sandbox, &script, &[], input);
        output.assert_code(64, &["chat"]);
        assert_contains(&output.err, &[problem]);
        assert_eq!(output.out, "", "{input}");
    }
}

#[test]
fn piped_input_that_is_not_utf_8_fails_with_its_line() {
    let (sandbox, script) = scripted(SCRIPT);
    let mut command = sandbox.command(&["chat"]);
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let input: &[u8] = b"hello\ncaf\xe9\nread my notes\n";
    let output = command.write_stdin(input).timeout(crate::sandbox::TIMEOUT).output();
    let output = CommandOutput::new(output.expect("runs"));
    output.assert_code(64, &["chat"]);
    assert_contains(&output.err, &["line 2 of the input is not UTF-8"]);
    assert!(output.out.contains("Hello.") && !output.out.contains("buy milk"), "{}", output.out);
}

#[test]
fn json_output_has_one_event_per_line() {
    let (sandbox, script) = scripted(SCRIPT);
    let output = chat(&sandbox, &script, &["--json", "read my notes"], "");
    output.assert_code(0, &["chat", "--json"]);
    assert_eq!(output.err, "");
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let events: Vec<_> = output.out.lines().map(read).collect();
    let finished = events.iter().find(|event| event["kind"] == "tool_finished").expect("a call");
    assert_eq!(
        (&finished["toolName"], &finished["executed"]),
        (&"read_file".into(), &"yes".into())
    );
    let last = events.last().expect("events");
    assert_eq!((&last["kind"], &last["outcome"]), (&"answer".into(), &"completed".into()));
}

#[test]
fn interrupted_model_is_exit_code_69() {
    let (sandbox, script) = scripted(SCRIPT);
    let output = chat(&sandbox, &script, &["fail"], "");
    output.assert_code(69, &["chat", "fail"]);
    assert_contains(&output.out, &["Half an answer", "broke before the answer was complete"]);
}

#[test]
fn unknown_agent_error_lists_known_agents() {
    let (sandbox, script) = scripted(SCRIPT);
    let output = chat(&sandbox, &script, &["hello", "--agent", "unknown"], "");
    output.assert_code(64, &["chat", "--agent", "unknown"]);
    assert_contains(&output.err, &["\"unknown\"", "assistant"]);
}

#[test]
fn invalid_model_script_is_rejected() {
    let (sandbox, script) = scripted("[[turn]]\ntxt = \"typo\"\n");
    let output = chat(&sandbox, &script, &["hello"], "");
    output.assert_code(64, &["chat"]);
    assert_contains(&output.err, &["script.toml", "txt"]);
}

const REMEMBERS: &str = r#"
[[turn]]
when = "keep"

[[turn.call]]
name = "save_memory"
arguments = { content = "The user likes tea." }

[[turn]]
text = "Done: {{result.save_memory}}"

[[turn]]
when = "drink"

[[turn.call]]
name = "search_memory"
arguments = { query = "tea" }

[[turn]]
text = "I know: {{result.search_memory}}"
"#;

#[test]
fn memory_persists_between_runs_unless_disabled() {
    let (sandbox, script) = scripted(REMEMBERS);
    let run = |store: Option<&str>, prompt: &str| {
        let mut command = sandbox.command(&["chat", prompt]);
        command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", &script);
        command.env("HOME", sandbox.temporary());
        if let Some(store) = store {
            command.env("ROCKBOT_MEMORY__STORE", store);
        }
        let output =
            CommandOutput::new(command.timeout(crate::sandbox::TIMEOUT).output().expect("runs"));
        output.assert_code(0, &["chat", prompt]);
        output.out
    };
    assert_contains(&run(None, "keep that I like tea"), &["Done: Remembered, id "]);
    let file = sandbox.temporary().join(".local/state/rockbot/memory.db");
    assert!(file.is_file(), "{}", file.display());
    assert_contains(&run(None, "what do I drink?"), &["I know: - The user likes tea."]);
    assert_contains(&run(Some("memory:"), "what do I drink?"), &["I know: No memory matches."]);
    assert_contains(&run(Some("off"), "what do I drink?"), &["tool not found: search_memory"]);
}

#[test]
fn call_in_text_runs_tool_if_configured() {
    let (sandbox, script) = scripted(
        r#"
        [[turn]]
        when = "<tool_response"
        text = "The notes are read."

        [[turn]]
        when = "read"
        text = "Looking.\n<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": \"notes.md\"}}</tool_call>"
        "#,
    );
    sandbox.write("text.toml", "[models.\"\"]\ntool_calls = \"text\"\n");
    let mut command = sandbox.command(&["--config", "text.toml", "chat", "read it"]);
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", &script);
    let output =
        CommandOutput::new(command.timeout(crate::sandbox::TIMEOUT).output().expect("runs"));
    output.assert_code(0, &["chat"]);
    assert_contains(&output.out, &["Looking.", "← read_file ran on", "The notes are read."]);
    assert!(!output.out.contains("tool_call>"), "{}", output.out);
}
