//! `rockbot init` with a model server on this machine.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use crate::{
    pseudo_terminal::Terminal,
    sandbox::{CommandOutput, Sandbox, TIMEOUT, assert_contains},
};

/// A server with two models, which answers every chat with "ready". Returns its base URL.
fn start_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that goes away is no failure.
            let _ = stream.and_then(answer);
        }
    });
    url
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut first, mut length) = (String::new(), String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if first.is_empty() {
            first.clone_from(&line);
        }
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
        line.clear();
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let (kind, body) = if first.starts_with("GET /v1/models ") {
        ("application/json", r#"{"data": [{"id": "small"}, {"id": "large"}]}"#.to_owned())
    } else {
        let delta = r#"{"choices":[{"index":0,"delta":{"content":"ready"},"finish_reason":null}]}"#;
        let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
        ("text/event-stream", format!("data: {delta}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn command(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.std_command(arguments);
    command.env("HOME", sandbox.temporary());
    command
}

fn run(sandbox: &Sandbox, arguments: &[&str], code: i32) -> CommandOutput {
    let mut command = assert_cmd::Command::from_std(command(sandbox, arguments));
    let output = CommandOutput::new(command.timeout(TIMEOUT).output().expect("it runs"));
    output.assert_code(code, arguments);
    output
}

#[test]
fn written_file_is_found_by_chat() {
    let (sandbox, url) = (Sandbox::new(), start_server());
    let output = run(&sandbox, &["init", "--base-url", &url, "--yes"], 0);
    assert_contains(&output.err, &["trying small at", "it answered in", ": ready"]);
    let file = sandbox.temporary().join(".config/rockbot/rockbot.toml");
    assert_contains(&output.out, &[".config/rockbot/rockbot.toml written"]);
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    let chat = run(&sandbox, &["chat", "hello"], 0);
    assert_contains(&chat.out, &["ready"]);
    assert_contains(&chat.err, &["small at"]);
    let again = run(&sandbox, &["init", "--base-url", &url, "--yes"], 64);
    assert_contains(&again.err, &["exists", "--force"]);
    run(&sandbox, &["init", "--base-url", &url, "--model", "large", "--yes", "--force"], 0);
    assert_contains(&std::fs::read_to_string(file).expect("text"), &["model = \"large\""]);
}

#[test]
fn questions_are_asked_on_a_terminal() {
    let (sandbox, url) = (Sandbox::new(), start_server());
    let mut command = command(&sandbox, &["init"]);
    command.env("OPENAI_BASE_URL", &url).env("OPENROUTER_API_KEY", "sk-hunter2");
    let mut terminal = Terminal::start(command);
    terminal.wait_for("which one? [1]: ");
    terminal.type_text("99\n");
    terminal.wait_for("expected a number");
    terminal.type_text("\n");
    terminal.wait_for("which model? [small]: ");
    terminal.type_text("large\n");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["trying large at", "written"]);
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn key_is_stored_in_a_private_file_on_request() {
    let (sandbox, url) = (Sandbox::new(), start_server());
    let arguments = ["init", "--base-url", &url, "--model", "m", "--yes", "--save-key"];
    let mut command = command(&sandbox, &arguments);
    command.env("OPENAI_API_KEY", "sk-hunter2").env("OPENAI_BASE_URL", &url);
    let mut command = assert_cmd::Command::from_std(command);
    let output = CommandOutput::new(command.timeout(TIMEOUT).output().expect("it runs"));
    output.assert_code(0, &arguments);
    let folder = sandbox.temporary().join(".config/rockbot");
    let text = std::fs::read_to_string(folder.join("rockbot.toml")).expect("a file");
    assert!(text.contains("api_key_file") && !text.contains("hunter2"), "{text}");
    let key = folder.join("model-key");
    assert_eq!(std::fs::read_to_string(&key).expect("a key"), "sk-hunter2");
    assert_eq!(key.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
}

#[test]
fn failed_trial_writes_nothing() {
    let sandbox = Sandbox::new();
    // No program listens there. A port that was free a moment ago may belong to another test now.
    let url = "http://127.0.0.1:1/v1";
    let output = run(&sandbox, &["init", "--base-url", url, "--model", "m", "--yes"], 69);
    assert_contains(&output.err, &["cannot connect to the model server"]);
    assert!(!sandbox.temporary().join(".config").exists());
    assert_contains(&run(&sandbox, &["init", "--base-url", "ftp://x", "--yes"], 64).err, &["http"]);
    let output = run(&sandbox, &["init", "--base-url", url], 64);
    assert_contains(&output.err, &["--yes"]);
}
