//! `--check-config`: all of it can be used, or all problems at once.

use crate::workshop::{PATIENCE, Said, Workshop, assert_says};

#[test]
fn the_defaults_can_be_used() {
    let said = Workshop::new().check(&["--check-config"], 0);
    assert_eq!(said.out, "the configuration is valid\n");
    Workshop::new().check(&["tools", "list", "--check-config"], 0);
}

#[test]
fn all_problems_are_told_at_once() {
    let workshop = Workshop::new();
    workshop.write(
        "bad.toml",
        "[bus]\nurl = \"http://broker\"\n[handler]\nconcurrency = 0\n[log]\nlevel = \"=:=\"\n\
         [fils]\nroot = \"x\"\n[service]\ndrain_seconds = \"long\"\n",
    );
    let mut command = workshop.command(&["--config", "bad.toml", "--check-config"]);
    command.env("ROCKBOT_LOG__FORMAT", "hunter2").env("ROCKBOT_LLM__MAX_ATTEMPTS", "99");
    let said = Said::of(command.output().expect("it runs"));
    said.assert_code(64, &["--check-config"]);
    let words = [
        "bus.url",
        "handler.concurrency",
        "[fils]",
        "service.drain_seconds",
        "ROCKBOT_LOG__FORMAT",
        "max_attempts",
    ];
    assert_says(&said.err, &words);
    assert!(!said.err.contains("hunter2"), "a value is shown: {}", said.err);
}

#[test]
fn what_the_embedded_fleet_needs_is_checked_too() {
    let workshop = Workshop::new();
    let arguments = ["--root", "no/such/folder", "--check-config"];
    let mut command = workshop.command(&arguments);
    let said = Said::of(command.env("ROCKBOT_AGENT__NAME", "nobody").output().expect("it runs"));
    said.assert_code(64, &arguments);
    assert_says(&said.err, &["no/such/folder", "agent.name", "assistant"]);
}

#[test]
fn a_file_that_is_not_toml_is_named() {
    let workshop = Workshop::new();
    workshop.write("broken.toml", "[bus\n");
    let said = workshop.check(&["--config", "broken.toml", "--check-config"], 64);
    assert_says(&said.err, &["broken.toml"]);
}

#[test]
fn a_store_that_cannot_be_used_is_told_before_the_broker_is_asked() {
    let workshop = Workshop::new();
    workshop.write("calls.db", "this is no database, however long one looks at it\n");
    let mut up = workshop.command(&["--bus", "amqp://127.0.0.1:1", "up"]);
    up.env("ROCKBOT_STORE__URL", "sqlite:calls.db").timeout(PATIENCE);
    let said = Said::of(up.output().expect("it runs"));
    said.assert_code(64, &["up"]);
    assert_says(&said.err, &["store.url", "calls.db"]);
}
