//! `rockbot dlq` on the bus in memory, which has no dead letters, and what cannot be typed.

use crate::workshop::{Workshop, assert_says};

#[test]
fn a_fresh_bus_has_no_dead_letters() {
    let workshop = Workshop::new();
    let said = workshop.check(&["dlq", "list"], 0);
    assert_says(&said.out, &["QUEUE", "DEAD LETTERS", "tool.invoke", "user.message.assistant"]);
    let list = workshop.check(&["dlq", "list", "--json"], 0).json();
    assert_eq!(list[0]["deadLetters"], 0);
    assert_eq!(
        (&list[1]["name"], &list[1]["ready"]),
        (&"tool.invoke.quarantine".into(), &0.into())
    );
    assert_eq!((&list[2]["exists"], &list[2]["ready"]), (&false.into(), &().into()));
    let said = workshop.check(&["dlq", "show", "tool.invoke"], 0);
    assert_eq!(said.out, "tool.invoke: 0 dead letters, 0 shown\n");
    let said = workshop.check(&["dlq", "replay", "tool.invoke", "--json"], 0).json();
    assert_eq!((&said["replayed"], &said["left"]), (&serde_json::json!([]), &0.into()));
}

#[test]
fn nothing_is_deleted_where_nobody_can_be_asked() {
    let workshop = Workshop::new();
    let said = workshop.check(&["dlq", "purge", "tool.invoke"], 64);
    assert_says(&said.err, &["no terminal", "--yes", "--dry-run"]);
    workshop.check(&["dlq", "purge", "tool.invoke", "--dry-run"], 0);
    workshop.check(&["dlq", "purge", "tool.invoke", "--yes"], 0);
}

#[test]
fn what_cannot_be_used_and_what_is_not_there_are_told_apart() {
    let workshop = Workshop::new();
    for arguments in [
        &["dlq", "show"][..],
        &["dlq", "show", "tool..invoke"],
        &["dlq", "show", "tool.invoke", "--limit", "0"],
        &["dlq", "show", "tool.invoke", "--limit", "1001"],
        &["dlq", "replay", "tool.invoke", "--id", "a", "--limit", "1"],
    ] {
        workshop.check(arguments, 64);
    }
    let said = workshop.check(&["dlq", "show", "no.such.queue"], 69);
    assert_says(&said.err, &["no.such.queue", "rockbot dlq list"]);
    let said = workshop.check(&["dlq", "show", "tool.invoke", "--id", "nobody"], 1);
    assert_says(&said.err, &["nobody", "nothing was changed"]);
}

#[test]
fn every_command_has_examples() {
    let workshop = Workshop::new();
    for command in ["list", "show", "replay", "purge"] {
        let said = workshop.check(&["dlq", command, "--help"], 0);
        assert_says(&said.out, &["Examples:", &format!("rockbot dlq {command}")]);
    }
}
