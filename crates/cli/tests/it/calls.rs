//! `rockbot call`, `rockbot bench`, and calls with `KEY=VALUE`.

use serde_json::Value;

use crate::{
    home::Home,
    sandbox::{Sandbox, assert_contains},
};

const SCRIPT: &str = r#"
[[turn]]

[[turn.call]]
name = "bash"
arguments = { command = "echo ran" }

[[turn]]
text = "Done."
"#;

#[test]
fn ended_call_is_found_in_the_journal() {
    let home = Home::new(SCRIPT);
    assert_contains(&home.check(&["call", "unknown"], 64).err, &["no journal is kept"]);
    let output = home.check(&["chat", "--json", "go"], 0);
    let events = output.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let started = events.into_iter().find(|event| event["kind"] == "tool_started");
    let id = started.expect("a call")["toolCallId"].as_str().expect("an id").to_owned();
    let found = home.check(&["call", &id], 0);
    assert_contains(&found.out, &[&id, "bash", "ended, executed: yes", "│ ran"]);
    assert_contains(&found.out, &["queue ", "start ", "run "]);
    let json = home.check(&["--json", "call", &id], 0).json();
    assert_eq!((&json["state"], &json["response"]["toolName"]), (&"ended".into(), &"bash".into()));
    let stages = &json["response"]["stages"];
    assert!(["queueMs", "startMs", "runMs"].iter().all(|name| stages[name].is_u64()), "{stages}");
    assert_contains(&home.check(&["call", "unknown"], 1).err, &["is not in the journal"]);
}

#[test]
fn bench_measures_messages_and_read_only_tools() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "text");
    let output = sandbox.check(&["bench", "--calls", "50", "--concurrency", "4"], 0);
    assert_contains(&output.out, &["messages to this process: 50 in", "per second", "p95"]);
    let arguments = ["--json", "bench", "--calls", "20", "--tool", "read_file", "path=notes.md"];
    let json = sandbox.check(&arguments, 0).json();
    assert_eq!((&json["succeeded"], &json["failed"]), (&20.into(), &0.into()));
    let missing = ["bench", "--calls", "3", "--tool", "read_file", "path=missing"];
    assert_contains(&sandbox.check(&missing, 1).out, &["failed: 3 with"]);
    let writing = ["bench", "--tool", "write_file", "path=a", "content=b"];
    assert_contains(&sandbox.check(&writing, 64).err, &["not a read-only tool"]);
    assert!(!sandbox.root().join("a").exists());
}

#[test]
fn pairs_are_read_by_the_schema() {
    let sandbox = Sandbox::new();
    sandbox.check(&["tools", "call", "write_file", "path=a.txt", "content=x=1"], 0);
    assert_eq!(sandbox.check(&["tools", "call", "read_file", "path=a.txt"], 0).out, "x=1\n");
    for (arguments, part) in [
        (&["read_file", "pth=a"][..], "did you mean path?"),
        (&["write_file", "path=a"], "content is missing; add content=VALUE"),
        (&["read_flie", "path=a"], "did you mean read_file?"),
    ] {
        let all = [&["tools", "call"], arguments].concat();
        let code = if arguments[0] == "read_flie" { 69 } else { 64 };
        assert_contains(&sandbox.check(&all, code).err, &[part, "executed: no"]);
    }
}
