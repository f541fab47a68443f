//! `rockbot context`, completions of names, and manual pages.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use crate::{
    home::Home,
    pseudo_terminal::Terminal,
    sandbox::{CommandOutput, assert_contains},
};

const SCRIPT: &str = "[[turn]]\ntext = \"Hello.\"\n";

#[test]
fn selected_context_is_used_unless_a_bus_is_given() {
    let home = Home::new(SCRIPT);
    // A port without a broker.
    let url = "amqp://me:hunter2@127.0.0.1:9/%2f";
    home.check(&["context", "add", "local", "--bus", url], 0);
    home.check(&["context", "add", "other", "--bus", "amqp://you:secret@127.0.0.1:9/%2f"], 0);
    let list = home.check(&["context", "list"], 0);
    assert_contains(&list.out, &["*  local", "me", "amqp://me@127.0.0.1:9/%2f", "other"]);
    assert!(!list.out.contains("hunter2"), "{}", list.out);
    let file = home.sandbox.temporary().join(".config/rockbot/contexts.toml");
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);

    let failed = home.check(&["tools", "list"], 69);
    assert!(!failed.err.contains("hunter2"), "{}", failed.err);
    home.check(&["--bus", "memory", "tools", "list"], 0);
    assert_contains(&home.check(&["--context", "othr", "tools", "list"], 64).err, &["other?"]);
    assert_contains(&home.check(&["context", "use", "none"], 64).err, &["there is no context"]);
    home.check(&["context", "use", "--none"], 0);
    home.check(&["tools", "list"], 0);
    home.check(&["context", "remove", "local"], 0);
    assert_contains(&home.check(&["context", "remove", "local"], 64).err, &["no context"]);
    home.check(&["context", "add", "x", "--bus", "http://127.0.0.1"], 64);
    home.check(&["context", "add", "x"], 64);
}

#[test]
fn services_do_not_join_the_selected_context() {
    let home = Home::new(SCRIPT);
    // A port without a broker.
    home.check(&["context", "add", "local", "--bus", "amqp://me:hunter2@127.0.0.1:9/%2f"], 0);
    let served = home.check(&["mcp", "serve"], 0);
    assert_contains(&served.err, &["the selected context local is not used", "--context"]);
    home.check(&["--context", "local", "mcp", "serve"], 69);
    let mut up = home.command(&["up"]);
    up.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut running = up.spawn().expect("it starts");
    let notes = BufReader::new(running.stderr.take().expect("a pipe")).lines();
    let mut seen = Vec::new();
    for note in notes.map(|note| note.expect("UTF-8")) {
        let is_ready = note.starts_with("ready");
        seen.push(note);
        if is_ready {
            break;
        }
    }
    running.kill().expect("killed");
    running.wait().expect("ended");
    let seen = seen.join("\n");
    assert_contains(&seen, &["the selected context local is not used", "bus: in memory", "ready"]);
    home.check(&["--context", "local", "up"], 69);
}

#[test]
fn error_about_the_file_of_contexts_shows_no_password() {
    let home = Home::new(SCRIPT);
    home.check(&["context", "add", "local", "--bus", "amqp://me:hunter2@127.0.0.1:9/%2f"], 0);
    let file = home.sandbox.temporary().join(".config/rockbot/contexts.toml");
    std::fs::write(&file, "[contexts]\nlocal = \"amqp://me:hunter2@127.0.0.1:9/%2f\"\n")
        .expect("written");
    let failed = home.check(&["context", "list"], 64);
    assert_contains(&failed.err, &["contexts.toml: invalid near line 2"]);
    assert!(!failed.err.contains("hunter2"), "{}", failed.err);
}

#[test]
fn completion_offers_discovered_names() {
    let home = Home::new(SCRIPT);
    let complete = |words: &[&str]| home.check(&[&["__complete", "--"], words].concat(), 0).out;
    assert_eq!(complete(&["tools", "call", "re"]), "");
    home.check(&["tools", "list"], 0);
    home.check(&["agents"], 0);
    assert_eq!(complete(&["tools", "call", "read_"]), "read_file\n");
    assert_eq!(complete(&["chat", "--agent", ""]), "assistant\n");
    assert_eq!(complete(&["tools", "call", "read_file", "re"]), "");
    assert_eq!(complete(&["dlq", "show", ""]), "");
    home.check(&["dlq", "list"], 0);
    let queues = "tool.invoke\ntool.invoke.quarantine\n";
    assert_eq!(complete(&["dlq", "show", "tool."]), queues);
    for shell in ["bash", "zsh", "fish"] {
        let script = home.check(&["completions", shell], 0).out;
        assert_contains(&script, &["__complete --"]);
        assert!(!script.contains("Print the names that complete"), "{shell}");
    }
}

#[test]
fn bash_completes_names_and_arguments() {
    let home = Home::new(SCRIPT);
    home.check(&["tools", "list"], 0);
    let script = home.check(&["completions", "bash"], 0).out;
    let script = home.sandbox.write("completion.bash", &script);
    let complete = |words: &str| {
        let line = format!(
            "source {script}; COMP_WORDS=({binary} {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _rockbot_names {binary} \"${{COMP_WORDS[COMP_CWORD]}}\" \
             \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script = script.display(),
            binary = env!("CARGO_BIN_EXE_rockbot"),
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &line]).env_clear().env("HOME", home.sandbox.temporary());
        bash.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        CommandOutput::new(bash.output().expect("bash is installed"))
    };
    assert_eq!(complete("tools call read_").out, "read_file\n");
    let arguments = complete("tools ca");
    assert_eq!(arguments.out, "call\n", "{}", arguments.err);
}

#[test]
fn manual_pages_are_written() {
    let home = Home::new(SCRIPT);
    home.check(&["man", "pages"], 0);
    let pages = home.sandbox.root().join("pages");
    let page = std::fs::read_to_string(pages.join("rockbot-tools-call.1")).expect("a page");
    assert_contains(&page, &["rockbot\\-tools\\-call", "KEY=VALUE"]);
    assert!(pages.join("rockbot.1").is_file());
    assert!(!pages.join("rockbot-__complete.1").exists());
}

#[test]
fn prompt_without_context_has_no_name() {
    let home = Home::new(SCRIPT);
    let mut terminal = Terminal::start(home.command(&["chat"]));
    terminal.wait_for("you ");
    terminal.type_text("\u{4}");
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
}
