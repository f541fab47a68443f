//! Output to a terminal, a pipe, a closed pipe, and a full disk.

use std::{
    fs::File,
    process::{Command, Stdio},
};

use crate::{
    pseudo_terminal,
    sandbox::{CommandOutput, Sandbox, assert_contains},
};

/// Text that would rename a window, clear the screen, and change the text direction.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\u{200b}harm";

/// Control characters and sequences in [`HOSTILE`].
const SEQUENCES: [&str; 5] = ["\u{1b}]0;", "\u{7}", "\u{1b}[2J", "\u{202e}", "\u{200b}"];

/// Script of a model that sends hostile text and arguments. `sleep 1.3` outlasts the 1 s between the
/// progress reports of `bash`.
const SCRIPT: &str = r#"
[[turn]]
text = "I call \u001b]0;owned\u0007\u001b[2J\u202e\u200bnow"

[[turn.call]]
name = "read_file"
arguments = { path = "hostile.txt" }

[[turn.call]]
name = "bash"
arguments = '{"command": "cat hostile.txt; sleep 1.3; echo # \u001b]0;owned\u0007\u001b[2J\u202e"}'

[[turn.call]]
name = "no\u001b]0;owned\u0007\u001b[2J\u202e\u200btool"

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
fn only_terminals_get_colors() {
    let sandbox = Sandbox::new();
    for arguments in [&["demo"][..], &["tools", "describe", "bash"], &["--help"]] {
        let output = sandbox.check(arguments, 0);
        assert!(!output.out.contains('\u{1b}'), "{arguments:?} colors a pipe: {:?}", output.out);
        let (shown, code) = pseudo_terminal::show(sandbox.std_command(arguments));
        assert_eq!(code, Some(0), "{arguments:?}");
        assert!(shown.contains("\u{1b}["), "{arguments:?} has no colors: {shown:?}");
    }
    let mut plain = sandbox.std_command(&["demo"]);
    plain.env("NO_COLOR", "1");
    let (shown, _) = pseudo_terminal::show(plain);
    assert!(!shown.contains('\u{1b}'), "NO_COLOR is ignored: {shown:?}");
}

#[test]
fn untrusted_text_cannot_control_terminal() {
    let sandbox = Sandbox::new();
    sandbox.write("hostile.txt", &format!("{HOSTILE}\n"));
    let script = sandbox.write("script.toml", SCRIPT);
    let mut chat = sandbox.std_command(&["chat", "go"]);
    chat.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script);
    let (shown, code) = pseudo_terminal::show(chat);
    assert_eq!(code, Some(0), "{shown:?}");
    for sequence in SEQUENCES {
        assert!(!shown.contains(sequence), "{sequence:?} was not removed: {shown:?}");
    }
    for part in ["I call", "→", "harm", "It says"] {
        assert!(shown.contains(part), "{part:?} is not shown: {shown:?}");
    }
}

#[test]
fn progress_is_cleaned_and_result_is_raw() {
    let sandbox = Sandbox::new();
    sandbox.write("hostile.txt", &format!("{HOSTILE}\n"));
    // The sleep outlasts the 1 s between the progress reports of `bash`.
    let call = r#"{"command": "cat hostile.txt; sleep 1.3; echo end"}"#;
    let mut command = sandbox.command(&["tools", "call", "bash", call]);
    let output = CommandOutput::new(command.env("CLICOLOR_FORCE", "1").output().expect("it runs"));
    output.assert_code(0, &["tools", "call", "bash"]);
    assert!(output.err.contains("harm"), "no progress: {:?}", output.err);
    for sequence in SEQUENCES {
        assert!(!output.err.contains(sequence), "{sequence:?} was not removed: {:?}", output.err);
        // A piped result is passed through unchanged.
        assert!(output.out.contains(sequence), "{sequence:?} is missing: {:?}", output.out);
    }
}

#[test]
fn closed_pipe_is_no_failure() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "text\n");
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = printed_to(writer, sandbox.std_command(arguments));
        output.assert_code(0, arguments);
        assert_eq!(output.err, "", "{arguments:?}");
    }
}

#[test]
fn full_disk_is_exit_code_74() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "text\n");
    for arguments in PRINTING {
        let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
        let output = printed_to(full, sandbox.std_command(arguments));
        output.assert_code(74, arguments);
        assert_contains(&output.err, &["cannot write the output", "No space left"]);
    }
}

fn printed_to(stdout: impl Into<Stdio>, mut command: Command) -> CommandOutput {
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    CommandOutput::new(command.spawn().expect("it starts").wait_with_output().expect("it ended"))
}
