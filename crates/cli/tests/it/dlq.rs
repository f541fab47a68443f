//! `rockbot dlq` on the in-memory bus, which has no dead letters, and invalid arguments.

use crate::sandbox::{Sandbox, assert_contains};

#[test]
fn new_bus_has_no_dead_letters() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["dlq", "list"], 0);
    assert_contains(
        &output.out,
        &["QUEUE", "DEAD LETTERS", "tool.invoke", "user.message.assistant"],
    );
    let list = sandbox.check(&["dlq", "list", "--json"], 0).json();
    assert_eq!(list[0]["deadLetters"], 0);
    assert_eq!(
        (&list[1]["name"], &list[1]["ready"]),
        (&"tool.invoke.quarantine".into(), &0.into())
    );
    assert_eq!((&list[2]["exists"], &list[2]["ready"]), (&false.into(), &().into()));
    let output = sandbox.check(&["dlq", "show", "tool.invoke"], 0);
    assert_eq!(output.out, "tool.invoke: 0 dead letters, 0 shown\n");
    let output = sandbox.check(&["dlq", "replay", "tool.invoke", "--json"], 0).json();
    assert_eq!((&output["replayed"], &output["left"]), (&serde_json::json!([]), &0.into()));
}

#[test]
fn purge_without_terminal_requires_confirmation_option() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["dlq", "purge", "tool.invoke"], 64);
    assert_contains(&output.err, &["no terminal", "--yes", "--dry-run"]);
    sandbox.check(&["dlq", "purge", "tool.invoke", "--dry-run"], 0);
    sandbox.check(&["dlq", "purge", "tool.invoke", "--yes"], 0);
}

#[test]
fn invalid_and_missing_queues_have_distinct_exit_codes() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["dlq", "show"][..],
        &["dlq", "show", "tool..invoke"],
        &["dlq", "show", "tool.invoke", "--limit", "0"],
        &["dlq", "show", "tool.invoke", "--limit", "1001"],
        &["dlq", "replay", "tool.invoke", "--id", "a", "--limit", "1"],
    ] {
        sandbox.check(arguments, 64);
    }
    let output = sandbox.check(&["dlq", "show", "no.such.queue"], 69);
    assert_contains(&output.err, &["no.such.queue", "rockbot dlq list"]);
    let output = sandbox.check(&["dlq", "show", "tool.invoke", "--id", "unknown"], 1);
    assert_contains(&output.err, &["unknown", "nothing was changed"]);
}

#[test]
fn help_of_every_command_has_examples() {
    let sandbox = Sandbox::new();
    for command in ["list", "show", "replay", "purge"] {
        let output = sandbox.check(&["dlq", command, "--help"], 0);
        assert_contains(&output.out, &["Examples:", &format!("rockbot dlq {command}")]);
    }
}
