//! What reaches a terminal, a pipe, a pipe that nobody reads, and a disk that is full.

use std::{
    fs::File,
    process::{Command, Stdio},
};

use crate::{
    pseudo_terminal,
    workshop::{Said, Workshop, assert_says},
};

/// What could rename a window, clear a screen, or turn the reading direction.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}harm";

/// How that begins when it comes through.
const SIGNS: [&str; 4] = ["\u{1b}]0;", "\u{7}", "\u{1b}[2J", "\u{202e}"];

/// Every argument and every word of this model is hostile.
const SCRIPT: &str = r#"
[[turn]]
text = "I call \u001b]0;owned\u0007\u001b[2J\u202enow"

[[turn.call]]
name = "read_file"
arguments = { path = "hostile.txt" }

[[turn.call]]
name = "bash"
arguments = '{"command": "cat hostile.txt; sleep 1.3; echo # \u001b]0;owned\u0007\u001b[2J\u202e"}'

[[turn.call]]
name = "no\u001b]0;owned\u0007\u001b[2J\u202etool"

[[turn]]
text = "It says {{result.read_file}}"
"#;

/// Commands that print something.
const PRINTING: [&[&str]; 11] = [
    &["demo"],
    &["tools", "list"],
    &["tools", "list", "--json"],
    &["tools", "describe", "bash"],
    &["tools", "call", "read_file", r#"{"path": "notes.md"}"#],
    &["doctor"],
    &["dlq", "list"],
    &["dlq", "show", "tool.invoke"],
    &["completions", "bash"],
    &["--help"],
    &["--check-config"],
];

#[test]
fn colours_are_for_terminals_only() {
    let workshop = Workshop::new();
    for arguments in [&["demo"][..], &["tools", "describe", "bash"], &["--help"]] {
        let said = workshop.check(arguments, 0);
        assert!(!said.out.contains('\u{1b}'), "{arguments:?} colours a pipe: {:?}", said.out);
        let (shown, code) = pseudo_terminal::show(workshop.std_command(arguments));
        assert_eq!(code, Some(0), "{arguments:?}");
        assert!(shown.contains("\u{1b}["), "{arguments:?} has no colours: {shown:?}");
    }
    let mut plain = workshop.std_command(&["demo"]);
    plain.env("NO_COLOR", "1");
    let (shown, _) = pseudo_terminal::show(plain);
    assert!(!shown.contains('\u{1b}'), "NO_COLOR is ignored: {shown:?}");
}

#[test]
fn nothing_that_a_model_or_a_tool_says_controls_the_terminal() {
    let workshop = Workshop::new();
    workshop.write("hostile.txt", &format!("{HOSTILE}\n"));
    let script = workshop.write("script.toml", SCRIPT);
    let mut chat = workshop.std_command(&["chat", "go"]);
    chat.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let (shown, code) = pseudo_terminal::show(chat);
    assert_eq!(code, Some(0), "{shown:?}");
    for sign in SIGNS {
        assert!(!shown.contains(sign), "{sign:?} came through: {shown:?}");
    }
    for part in ["I call", "→", "harm", "It says"] {
        assert!(shown.contains(part), "{part:?} is not shown: {shown:?}");
    }
}

#[test]
fn progress_of_a_call_is_cleaned_and_its_result_is_raw() {
    let workshop = Workshop::new();
    workshop.write("hostile.txt", &format!("{HOSTILE}\n"));
    let call = r#"{"command": "cat hostile.txt; sleep 1.3; echo end"}"#;
    let mut command = workshop.command(&["tools", "call", "bash", call]);
    let said = Said::of(command.env("CLICOLOR_FORCE", "1").output().expect("it runs"));
    said.assert_code(0, &["tools", "call", "bash"]);
    assert!(said.err.contains("harm"), "no progress: {:?}", said.err);
    for sign in SIGNS {
        assert!(!said.err.contains(sign), "{sign:?} came through: {:?}", said.err);
        // Whoever pipes a result wants it byte by byte.
        assert!(said.out.contains(sign), "{sign:?} is missing: {:?}", said.out);
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let workshop = Workshop::new();
    workshop.write("notes.md", "text\n");
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let said = printed_to(writer, workshop.std_command(arguments));
        said.assert_code(0, arguments);
        assert_eq!(said.err, "", "{arguments:?}");
    }
}

#[test]
fn an_output_that_is_full_is_told_and_exit_code_74() {
    let workshop = Workshop::new();
    workshop.write("notes.md", "text\n");
    for arguments in PRINTING {
        let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
        let said = printed_to(full, workshop.std_command(arguments));
        said.assert_code(74, arguments);
        assert_says(&said.err, &["cannot write the output", "No space left"]);
    }
}

fn printed_to(stdout: impl Into<Stdio>, mut command: Command) -> Said {
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    Said::of(command.spawn().expect("it starts").wait_with_output().expect("it ended"))
}
