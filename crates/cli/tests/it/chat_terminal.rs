//! `rockbot chat` on a pseudo terminal.

use std::os::unix::fs::PermissionsExt;

use crate::{
    home::Home,
    pseudo_terminal::{Terminal, show},
    sandbox::assert_contains,
};

const SCRIPT: &str = r#"
[[turn]]
when = "read"
text = "Looking."

[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says: **{{result.read_file}}**"

[[turn]]
when = "first line\nsecond line"
text = "Got both lines."

[[turn]]
when = "hello"
text = "Hello **you** and `me`.\n"

[[turn]]
when = "wait"

[[turn.call]]
name = "bash"
arguments = { command = "sleep 2" }

[[turn]]
text = "Waited."
"#;

/// The prompt of the editor.
const PROMPT: &str = "you ";
const END_OF_INPUT: &str = "\u{4}";

fn home() -> Home {
    let home = Home::new(SCRIPT);
    home.sandbox.write("notes.md", "buy milk");
    home
}

fn session(home: &Home, arguments: &[&str]) -> Terminal {
    let mut terminal = Terminal::start(home.command(&[&["chat"], arguments].concat()));
    terminal.wait_for(PROMPT);
    terminal
}

/// Sends a line, waits for `expected`, and for the next prompt.
#[track_caller]
fn exchange(terminal: &mut Terminal, typed: &str, expected: &str) {
    terminal.type_text(&format!("{typed}\r"));
    terminal.wait_for(expected);
    terminal.wait_for(PROMPT);
}

#[test]
fn pasted_lines_are_one_message() {
    let home = home();
    let mut terminal = session(&home, &[]);
    let pasted = "\u{1b}[200~first line\nsecond line\u{1b}[201~";
    exchange(&mut terminal, pasted, "Got both lines.");
    terminal.type_text(END_OF_INPUT);
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn history_is_private_and_kept_between_sessions() {
    let home = home();
    let mut terminal = session(&home, &[]);
    exchange(&mut terminal, "hello", "Hello ");
    terminal.type_text(END_OF_INPUT);
    terminal.finish();
    let file = home.sandbox.temporary().join(".local/state/rockbot/chat-history");
    assert_contains(&std::fs::read_to_string(&file).expect("a history"), &["hello"]);
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    let mut terminal = session(&home, &[]);
    // The arrow up, then Enter.
    exchange(&mut terminal, "\u{1b}[A", "Hello ");
    terminal.type_text(END_OF_INPUT);
    terminal.finish();
}

#[test]
fn commands_work_between_messages() {
    let home = home();
    let mut terminal = session(&home, &[]);
    for (typed, expected) in [
        ("/help", "/export [FILE]"),
        ("/hlep", "did you mean /help?"),
        ("/last", "no tool was called"),
        ("/retry", "no message to send again"),
        ("read my notes", "It says: "),
        ("/last", "│ buy milk"),
        ("/cost", "2 model calls"),
        ("/tools", "read_file"),
        ("/export conversation.jsonl", "conversation.jsonl written"),
        ("/export conversation.jsonl", "cannot create conversation.jsonl"),
        ("/agent missing", "is not available"),
        ("/agent", "assistant"),
        ("/new", "a new conversation starts"),
        ("/last", "no tool was called"),
        ("/retry", "It says: "),
    ] {
        exchange(&mut terminal, typed, expected);
    }
    terminal.type_text(END_OF_INPUT);
    let (shown, code) = terminal.finish();
    assert_eq!(code, Some(0), "{shown}");
    let path = home.sandbox.root().join("conversation.jsonl");
    let exported = std::fs::read_to_string(path).expect("exported");
    assert_contains(&exported, &["\"kind\":\"conversation\"", "read my notes", "buy milk"]);
}

#[test]
fn markdown_is_drawn_on_terminals_only() {
    let home = home();
    let (shown, code) = show(home.command(&["chat", "hello"]));
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["Hello \u{1b}[1myou\u{1b}[0m and \u{1b}[32mme\u{1b}[0m."]);
    let piped = home.check(&["chat", "hello"], 0);
    assert_contains(&piped.out, &["Hello **you** and `me`."]);
    let mut plain = home.command(&["chat", "hello"]);
    plain.env("NO_COLOR", "1");
    assert_contains(&show(plain).0, &["Hello **you** and `me`."]);
}

#[test]
fn silent_turn_shows_what_it_waits_for() {
    let home = home();
    let (shown, code) = show(home.command(&["chat", "wait"]));
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["1 s · bash · Ctrl-C cancels", "Waited."]);
    let piped = home.check(&["chat", "wait"], 0);
    assert!(!piped.err.contains("Ctrl-C cancels"), "{}", piped.err);
}

#[test]
fn details_of_calls_are_shown_on_request() {
    let home = home();
    let brief = home.check(&["chat", "read it"], 0).out;
    assert!(brief.contains("→ read_file {") && !brief.contains("│ buy milk"), "{brief}");
    let calls = home.check(&["chat", "read it", "--show", "calls"], 0).out;
    assert!(calls.contains("    path: notes.md") && !calls.contains("│ buy milk"), "{calls}");
    let results = home.check(&["chat", "read it", "--show", "results"], 0).out;
    assert_contains(&results, &["    path: notes.md", "    │ buy milk"]);
}

#[test]
fn long_message_is_refused_whole() {
    let home = home();
    let mut command = assert_cmd::Command::from_std(home.command(&["chat"]));
    let long = format!("hello {}\n", "x".repeat(70_000));
    let output = command.write_stdin(long).output().expect("it runs");
    let output = crate::sandbox::CommandOutput::new(output);
    output.assert_code(64, &["chat"]);
    assert_contains(&output.err, &["65536 bytes", "nothing of it was sent"]);
    assert!(!output.out.contains("Hello"), "{}", output.out);
}
