//! Stored conversations of the embedded agent: `rockbot sessions`, `rockbot chat --continue`.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    process::{Command, Stdio},
};

use rockbot_store::{Clock, Key, Prefix, StoreUrl};
use serde_json::Value;

use crate::{
    home::Home,
    sandbox::{CommandOutput, assert_contains},
};

const SCRIPT: &str = r#"
[[turn]]
when = "hello"
text = "Hello."

[[turn]]
when = "read"

[[turn.call]]
name = "read_file"
arguments = { path = "notes.md" }

[[turn]]
text = "It says: {{result.read_file}}"

[[turn]]
when = "note"

[[turn.call]]
name = "save_to_working_memory"
arguments = { key = "note", data = "buy milk" }

[[turn]]
text = "Noted: {{result.save_to_working_memory}}"

[[turn]]
when = "wait"
text = "Waiting."

[[turn.call]]
name = "bash"
arguments = { command = "echo started > started; read line < release" }

[[turn]]
text = "The command: {{result.bash}}"
"#;

/// A home with notes.
fn home() -> Home {
    let home = Home::new(SCRIPT);
    home.sandbox.write("notes.md", "buy milk\n");
    home
}

impl Home {
    /// Returns the conversations, the last active first.
    fn sessions(&self) -> Vec<Value> {
        let list = self.check(&["sessions", "list", "--json"], 0).json();
        list.as_array().expect("a list").clone()
    }

    /// Returns the conversations with entries in working memory.
    fn noted_sessions(&self) -> Vec<String> {
        let path = self.sandbox.temporary().join(".local/state/rockbot/memory.db");
        let prefix = Prefix::new(["working-memory"]).expect("a prefix");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let keys = runtime.block_on(async {
            let url = StoreUrl::Sqlite(path);
            let store = rockbot_store_sql::connect(&url, Clock::System).await.expect("a store");
            let page = store.list(&prefix, None, 100).await.expect("keys");
            store.close().await;
            page
        });
        let session = |key: &Key| key.segments().nth(3).expect("a session");
        keys.iter().map(|(key, _)| session(key)).collect()
    }

    /// Creates a named pipe. Opening it waits for its other end.
    fn pipe(&self, name: &str) -> std::path::PathBuf {
        let path = self.sandbox.root().join(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        path
    }
}

fn id(session: &Value) -> &str {
    session["sessionId"].as_str().expect("an id")
}

#[test]
fn conversations_are_listed_shown_exported_and_deleted() {
    let home = home();
    assert!(home.sessions().is_empty());
    home.check(&["chat", "hello there"], 0);
    home.check(&["chat", "read my notes"], 0);
    let sessions = home.sessions();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert_eq!(
        (&sessions[0]["title"], &sessions[0]["state"]),
        (&"read my notes".into(), &"idle".into())
    );
    let list = home.check(&["sessions", "list"], 0);
    assert_contains(
        &list.out,
        &["SESSION", "read my notes", "hello there", id(&sessions[1]), "idle"],
    );
    let shown = home.check(&["sessions", "show", id(&sessions[0])], 0);
    assert_contains(
        &shown.out,
        &["you: read my notes", "→ read_file", "← read_file", "It says: buy milk"],
    );
    let exported = home.check(&["sessions", "export", id(&sessions[0])], 0);
    let lines: Vec<Value> =
        exported.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["conversation", "message", "model", "result", "answer"]);
    home.check(&["sessions", "delete", id(&sessions[0])], 64);
    home.check(&["sessions", "delete", id(&sessions[0]), "--yes"], 0);
    let output = home.check(&["sessions", "show", id(&sessions[0])], 1);
    assert_contains(&output.err, &[id(&sessions[0])]);
    home.check(&["sessions", "delete", "unknown", "--yes"], 1);
    assert_eq!(home.sessions().len(), 1);
    home.check(&["sessions", "delete", "--all", "--yes"], 0);
    assert!(home.sessions().is_empty());
}

#[test]
fn feedback_is_recorded_for_the_last_or_a_named_answer() {
    let home = home();
    home.check(&["chat", "hello there"], 0);
    home.check(&["chat", "--continue", "read my notes"], 0);
    let session = home.sessions().remove(0);
    let export = || -> Vec<Value> {
        let exported = home.check(&["sessions", "export", id(&session)], 0);
        exported.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let messages: Vec<_> = export().into_iter().filter(|one| one["kind"] == "message").collect();
    let first = messages[0]["messageId"].as_str().expect("an id").to_owned();
    home.check(&["sessions", "feedback", id(&session), "bad", "too", "short"], 0);
    home.check(&["sessions", "feedback", id(&session), "good", "--message", &first], 0);
    let recorded: Vec<_> = export().into_iter().filter(|one| one["kind"] == "feedback").collect();
    let rated = |index: usize| {
        let one: &Value = &recorded[index];
        (one["messageId"].clone(), one["rating"].clone(), one["comment"].clone())
    };
    let expected = (messages[1]["messageId"].clone(), "negative".into(), "too short".into());
    assert_eq!(rated(0), expected);
    assert_eq!(rated(1), (first.into(), "positive".into(), "".into()));
    let shown = home.check(&["sessions", "show", id(&session)], 0);
    assert_contains(&shown.out, &["(feedback: negative: too short)", "(feedback: positive)"]);
    home.check(&["sessions", "feedback", "unknown", "good"], 1);
    home.check(&["sessions", "feedback", id(&session), "good", "--message", "unknown"], 1);
    home.check(&["sessions", "feedback", id(&session), "excellent"], 64);
}

#[test]
fn deletion_removes_working_memory_of_the_conversation() {
    let home = home();
    for text in ["note one", "note two"] {
        home.check(&["chat", text], 0);
    }
    let sessions = home.sessions();
    assert_eq!(home.noted_sessions().len(), 2);
    home.check(&["sessions", "delete", id(&sessions[0]), "--yes"], 0);
    assert_eq!(home.noted_sessions(), [id(&sessions[1])]);
}

#[test]
fn chat_continues_the_last_or_a_named_conversation() {
    let home = home();
    home.check(&["chat", "--continue", "hello"], 1);
    home.check(&["chat", "--session", "unknown", "hello"], 1);
    home.check(&["chat", "hello first"], 0);
    home.check(&["chat", "hello second"], 0);
    let output = home.check(&["chat", "--continue", "read my notes"], 0);
    assert_contains(&output.err, &["continuing \"hello second\""]);
    assert_contains(&output.out, &["It says: buy milk"]);
    let first = home.sessions().pop().expect("a conversation");
    assert_eq!(first["title"], "hello first");
    home.check(&["chat", "--session", id(&first), "read my notes"], 0);
    let sessions = home.sessions();
    assert_eq!(sessions.len(), 2);
    assert_eq!((id(&sessions[0]), &sessions[0]["turns"]), (id(&first), &2.into()));
    let output = home.check(&["sessions", "resume", id(&first)], 0);
    assert_contains(&output.err, &["every message of it was answered"]);
}

#[test]
fn killed_chat_goes_on_when_it_is_continued() {
    let home = home();
    let (started, release) = (home.pipe("started"), home.pipe("release"));
    let mut command = home.command(&["chat", "wait for me"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().expect("it starts");
    let mut line = String::new();
    File::open(started).and_then(|mut pipe| pipe.read_to_string(&mut line)).expect("the command");
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    let sessions = home.sessions();
    assert_eq!((sessions.len(), &sessions[0]["state"]), (1, &"open".into()));
    let output = home.check(&["chat", "--continue"], 0);
    assert_contains(&output.err, &["its last turn was interrupted; it goes on"]);
    // The command may have run, so it does not run again.
    assert_contains(&output.out, &["bash", "outcome_unknown, executed: unknown", "The command: "]);
    let sessions = home.sessions();
    assert_eq!((&sessions[0]["state"], &sessions[0]["turns"]), (&"idle".into(), &1.into()));
    // The command outlived its handler, which was killed.
    let mut released = OpenOptions::new().write(true).open(release).expect("the other end");
    writeln!(released).expect("written");
}

#[test]
fn memory_store_says_that_nothing_survives() {
    let home = home();
    let run = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("ROCKBOT_AGENT__CONVERSATIONS__STORE", "memory:");
        CommandOutput::new(command.stdin(Stdio::null()).output().expect("it runs"))
    };
    let chat = run(&["chat", "hello"]);
    chat.assert_code(0, &["chat"]);
    assert_contains(&chat.err, &["nothing of them survives this process"]);
    let list = run(&["sessions", "list"]);
    list.assert_code(64, &["sessions", "list"]);
    assert_contains(&list.err, &["agent.conversations.store", "sqlite:", "--bus"]);
}
