//! `rockbot schedule` on the store of the embedded agent, and results in a chat.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use crate::{
    home::Home,
    sandbox::{CommandOutput, assert_contains},
};

const SCRIPT: &str = r#"
[[turn]]
when = "mails"
text = "There are two new tickets."

[[turn]]
when = "hello"
text = "Hello."
"#;

#[test]
fn tasks_are_added_listed_shown_and_cancelled() {
    let home = Home::new(SCRIPT);
    assert_contains(&home.check(&["schedule", "list"], 0).err, &["has no scheduled tasks"]);
    let arguments = [
        "schedule",
        "add",
        "report",
        "0 9 * * MON-FRI",
        "Count tickets",
        "--timezone",
        "Asia/Tokyo",
    ];
    let added = home.check(&arguments, 0);
    assert_contains(&added.out, &["Scheduled task 'report'", "09:00:00, then", "Asia/Tokyo"]);
    let refused = home.check(&["schedule", "add", "x", "0 9 * *", "Count tickets"], 64);
    assert_contains(&refused.err, &["is not a cron expression", "or 6 with seconds first"]);

    let list = home.check(&["schedule", "list"], 0);
    assert_contains(&list.out, &["NEXT FIRE", "report", "Asia/Tokyo", "09:00:00", "never"]);
    let shown = home.check(&["schedule", "show", "Report"], 0);
    assert_contains(&shown.out, &["cron: 0 9 * * MON-FRI", "0 fired", "Count tickets"]);
    let json = home.check(&["schedule", "list", "--json"], 0).json();
    assert_eq!((&json[0]["name"], &json[0]["fired"]), (&"report".into(), &0.into()));

    home.check(&["schedule", "show", "other"], 1);
    home.check(&["schedule", "run-now", "other"], 1);
    home.check(&["schedule", "cancel", "other"], 1);
    let cancelled = home.check(&["schedule", "cancel", "report"], 0);
    assert_contains(&cancelled.out, &["Cancelled scheduled task 'report'."]);
    assert_eq!(home.check(&["schedule", "list", "--json"], 0).json(), serde_json::json!([]));
}

#[test]
fn scheduling_can_be_turned_off() {
    let home = Home::new(SCRIPT);
    let mut command = home.command(&["schedule", "list"]);
    command.env("ROCKBOT_SCHEDULE__ENABLED", "false");
    let output = CommandOutput::new(command.output().expect("it runs"));
    output.assert_code(1, &["schedule", "list"]);
    assert_contains(&output.err, &["scheduling is off", "schedule.enabled = true"]);
}

#[test]
fn chat_prints_the_result_of_a_task_between_turns() {
    let home = Home::new(SCRIPT);
    home.check(&["schedule", "add", "report", "@yearly", "Count the mails"], 0);
    assert_contains(&home.check(&["schedule", "run-now", "report"], 0).out, &["is due now"]);
    // A single message fires nothing.
    home.check(&["chat", "hello"], 0);
    let shown = home.check(&["schedule", "show", "report"], 0);
    assert_contains(&shown.out, &["0 fired"]);

    let mut command = home.command(&["chat"]);
    let mut chat = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(chat.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_contains(
        &next(),
        &["scheduled task 'report' completed, conversation scheduled-report-"],
    );
    assert_eq!(next(), "There are two new tickets.");
    let mut input = chat.stdin.take().expect("piped");
    writeln!(input, "hello").expect("written");
    assert_eq!(next(), "Hello.");
    drop(input);
    assert!(chat.wait().expect("it ends").success());
    let shown = home.check(&["schedule", "show", "report"], 0);
    assert_contains(&shown.out, &["1 fired", "completed", "There are two new tickets."]);
}
