//! Tool calls from the command line over RabbitMQ.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    agents::use_demo_script,
    fleet::{Fleet, ProcessGroup, assert_contains},
    process::Running,
};

/// Limit for a stop without running calls, also on a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn call_runs_in_handler_and_doctor_lists_it() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    let _handler = fleet.handler("handler-1").await;

    let call = ["--json", "tools", "call", "read_file", r#"{"path": "notes.md"}"#];
    let called = fleet.run(&call).await;
    called.assert_code(0);
    let called = called.json();
    assert_eq!(called["content"], "buy milk\n");
    assert_eq!(called["ranOn"], "tool-handler/handler-1");

    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(0);
    assert_contains(
        &doctor.stdout,
        &["RabbitMQ", "tool.invoke", "read_file", "tool-handler/handler-1"],
    );
    let report = fleet.run(&["doctor", "--json"]).await.json();
    let bus = report["bus"].as_str().expect("the product");
    assert!(bus.chars().any(|c| c.is_ascii_digit()), "no version: {bus}");
    let queues = report["queues"].as_array().expect("queues");
    let invoke = queues.iter().find(|queue| queue["name"] == "tool.invoke").expect("listed");
    assert_eq!((&invoke["consumers"], &invoke["ready"]), (&1.into(), &0.into()));
}

#[tokio::test]
async fn tools_list_shows_every_handler() {
    let fleet = Fleet::new();
    let _handlers = (fleet.handler("handler-1").await, fleet.handler("handler-2").await);
    let both = ["tool-handler/handler-1", "tool-handler/handler-2"];
    for arguments in [&["tools", "describe", "bash"][..], &["doctor"]] {
        let shown = fleet.run(arguments).await;
        shown.assert_code(0);
        assert_contains(&shown.stdout, &both);
    }
}

#[tokio::test]
async fn stopping_handler_finishes_call_and_withdraws_tools() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let command =
        r#"{"command": "echo $$ > pid; until [ -e gate ]; do sleep 0.05; done; echo done"}"#;
    let call = fleet.start(&["tools", "call", "bash", command]);
    let _group = ProcessGroup::from_file(&fleet, "pid").await;

    handler.send(Signal::TERM);
    handler.expect_log("SIGTERM").await;
    fleet.write("gate", "");
    let called = call.wait().await;
    called.assert_code(0);
    assert_eq!(called.stdout, "done\n");
    handler.wait_within(STOP_LIMIT).await.assert_code(0);

    let refused = fleet.run(&["tools", "call", "list_files"]).await;
    refused.assert_code(69);
    assert_contains(&refused.stderr, &["no handler is available for tool list_files"]);
    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(69);
    assert_contains(&doctor.stderr, &["no tool handler is available"]);
}

#[tokio::test]
async fn ctrl_c_cancels_command_in_handler() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    // A child of the shell, which ends only if the whole process group is killed.
    let command = r#"{"command": "sleep 1000 & echo $! > child; echo $$ > pid; wait"}"#;
    let call = fleet.start(&["tools", "call", "bash", command]);
    let group = ProcessGroup::from_file(&fleet, "pid").await;
    let child = ProcessGroup::from_file(&fleet, "child").await;

    call.send(Signal::INT);
    let called = call.wait_within(STOP_LIMIT).await;
    called.assert_code(1);
    assert_contains(&called.stderr, &["cancelled", "executed: yes"]);
    group.wait_for_exit().await;
    child.wait_for_exit().await;
    assert!(handler.is_alive());
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
}

#[tokio::test]
async fn timed_out_call_is_stopped_in_handler() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let command = r#"{"command": "echo $$ > pid; sleep 1000"}"#;
    let call = fleet.start(&["tools", "call", "bash", command, "--timeout", "1"]);
    let group = ProcessGroup::from_file(&fleet, "pid").await;
    let called = call.wait_within(STOP_LIMIT).await;
    called.assert_code(75);
    assert_contains(&called.stderr, &["timeout", "executed: yes"]);
    group.wait_for_exit().await;
}

#[tokio::test]
async fn handlers_with_different_tools_are_reported() {
    let fleet = Fleet::new();
    let mut command = fleet.program("rockbot-agent");
    use_demo_script(&mut command);
    let mut agent = Running::start(command);
    let _first = fleet.handler("handler-1").await;
    fleet.run(&["doctor"]).await.assert_code(0);
    let second = fleet.handler_with("handler-2", &[("ROCKBOT_FILES__ALLOW_BASH", "false")]).await;
    agent.expect_log("handlers of one pool announce different tools").await;
    let list = fleet.run(&["tools", "list"]).await;
    list.assert_code(0);
    assert_contains(&list.stdout, &["bash *", "read_file "]);
    let expected = "bash is missing from tool-handler/handler-2";
    assert_contains(&list.stderr, &[expected]);
    let json = fleet.run(&["tools", "list", "--json"]).await.json();
    let bash = json.as_array().expect("an array").iter().find(|tool| tool["name"] == "bash");
    assert_eq!(bash.expect("merged")["missingFrom"], json!(["tool-handler/handler-2"]));
    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(1);
    assert_contains(&doctor.stderr, &[expected]);
    second.send(Signal::TERM);
    second.wait().await.assert_code(0);
    agent.expect_log("handlers announce the same tools again").await;
    fleet.run(&["doctor"]).await.assert_code(0);
}
