//! Commands with a broker user that lacks a right, and the state of a fleet that they show.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;

use crate::{
    fleet::{Fleet, assert_contains},
    identity::SecuredFleet,
    process::{Exit, Running},
};

const CALL: [&str; 3] = ["tools", "call", "list_files"];

async fn run_as(secured: &SecuredFleet, user: &str, arguments: &[&str]) -> Exit {
    let mut command = secured.program("rockbot", user);
    command.args(arguments);
    Running::start(command).wait().await
}

#[tokio::test]
async fn user_that_may_not_call_is_named_before_the_call() {
    let secured = SecuredFleet::start().await;
    let mut handler = Running::start(secured.program("rockbot-tool-handler", "tool-handler"));
    handler.expect_log("ready").await;
    let cli = format!("use the broker user {}.cli", secured.fleet.namespace);

    let started = Instant::now();
    let called = run_as(&secured, "foreign", &[&["--json"][..], &CALL].concat()).await;
    called.assert_code(69);
    let result = called.json();
    assert_eq!((&result["ok"], &result["executed"]), (&json!(false), &json!("no")));
    assert_contains(result["message"].as_str().expect("text"), &["accept no calls of user", &cli]);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let doctor = run_as(&secured, "foreign", &["doctor"]).await;
    doctor.assert_code(69);
    assert_contains(&doctor.stderr, &["accept no calls of user", &cli]);
    for user in ["operator", "monitor"] {
        let called = run_as(&secured, user, &CALL).await;
        called.assert_code(69);
        assert_contains(&called.stderr, &["ACCESS_REFUSED", &cli, "executed: no"]);
    }
    secured.cli(&CALL).await.assert_code(0);
}

#[tokio::test]
async fn command_without_the_right_names_the_operator() {
    let secured = SecuredFleet::start().await;
    let mut handler = Running::start(secured.program("rockbot-tool-handler", "tool-handler"));
    handler.expect_log("ready").await;
    let operator = format!("use the broker user {}.operator", secured.fleet.namespace);
    let shown = secured.cli(&["dlq", "show", "tool.invoke"]).await;
    shown.assert_code(69);
    assert_contains(&shown.stderr, &[&operator]);
    run_as(&secured, "operator", &["dlq", "show", "tool.invoke"]).await.assert_code(0);
    let listed = run_as(&secured, "operator", &["dlq", "list"]).await;
    listed.assert_code(0);
    assert!(!listed.stderr.contains(&operator), "{}", listed.stderr);
}

#[tokio::test]
async fn doctor_and_dlq_list_show_every_work_queue() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let _bridge = fleet.bridge("bridge-1", &json!({})).await;
    let doctor = fleet.run(&["--json", "doctor"]).await;
    doctor.assert_code(0);
    let report = doctor.json();
    let queues = report["queues"].as_array().expect("queues");
    let queue = |name: &str| {
        let queue = queues.iter().find(|queue| queue["name"] == name);
        queue.unwrap_or_else(|| panic!("{name} is missing: {report:#}"))
    };
    assert_eq!(queue("tool.invoke.mcp")["consumers"], 1);
    assert_eq!(queue("mcp.manage")["consumers"], 1);
    assert_eq!(queue("script.invoke")["exists"], false);
    assert_eq!(report["mcpServers"], json!([]));
    let list = fleet.run(&["dlq", "list"]).await;
    list.assert_code(0);
    let names =
        ["tool.invoke.mcp.quarantine", "script.invoke.quarantine", "user.message.assistant"];
    assert_contains(&list.stdout, &names);
    assert_contains(
        &list.stdout,
        &["user.conversation.assistant", "agent.task.assistant", "agent.response.assistant"],
    );
}

#[tokio::test]
async fn doctor_shows_the_script_isolation_of_handlers() {
    let fleet = Fleet::new();
    let local = [("ROCKBOT_SCRIPTS__RUNNER", "local")];
    let _scripts = fleet.handler_with("handler-1", &local).await;
    let _others = fleet.handler("handler-2").await;
    fleet.write("answer.py", "print(6 * 7)");
    let run = fleet.run(&["--json", "script", "run", "answer.py"]).await;
    run.assert_code(0);
    let isolation = run.json()["isolation"]["by"].as_str().expect("an isolation").to_owned();
    assert_contains(&isolation, &["kernel memory is not limited"]);

    let doctor = fleet.run(&["--json", "doctor"]).await;
    let report = doctor.json();
    let handlers = report["handlers"].as_array().expect("handlers");
    let scripts = |instance: &str| {
        let handler = handlers.iter().find(|handler| handler["instance"] == instance);
        &handler.unwrap_or_else(|| panic!("{instance} is missing: {report:#}"))["scripts"]
    };
    assert_eq!(scripts("handler-1")["isolatedBy"], isolation);
    assert!(scripts("handler-2").is_null(), "{report:#}");
    let doctor = fleet.run(&["doctor"]).await;
    let line = format!("scripts of handlers  {isolation} (tool-handler/handler-1)");
    assert_contains(&doctor.stdout, &[&line]);
}

#[tokio::test]
async fn script_runs_in_a_handler_without_scripts_managers() {
    let fleet = Fleet::new();
    fleet.write("answer.py", "print(6 * 7)");
    let run = ["--json", "script", "run", "answer.py"];
    let refused = fleet.run(&run).await;
    refused.assert_code(69);
    let refused = refused.json();
    assert_eq!(refused["executed"], "no");
    assert_contains(
        refused["message"].as_str().expect("text"),
        &["no scripts manager", "--runner"],
    );

    let local = ("ROCKBOT_SCRIPTS__RUNNER", "local");
    let _handler = fleet.handler_with("handler-1", &[local]).await;
    let script = fleet.run(&run).await;
    script.assert_code(0);
    let script = script.json();
    assert_eq!((&script["stdout"], &script["exitCode"]), (&json!("42\n"), &json!(0)));
    let managers = fleet.run(&[&run[..], &["--runner", "bus"]].concat()).await;
    managers.assert_code(69);
    let message = managers.json()["message"].as_str().expect("text").to_owned();
    assert_contains(&message, &["no scripts manager", "omit --runner"]);
}

#[tokio::test]
async fn output_of_stopped_script_crosses_the_bus() {
    let fleet = Fleet::new();
    fleet.write("slow.py", "import time\nprint('begun', flush=True)\ntime.sleep(60)\n");
    let _handler = fleet.handler_with("handler-1", &[("ROCKBOT_SCRIPTS__RUNNER", "local")]).await;
    let stopped = fleet.run(&["script", "run", "slow.py", "--timeout", "4"]).await;
    stopped.assert_code(75);
    // First as progress, and again with the failure.
    assert_eq!(stopped.stderr.matches("begun").count(), 2, "{}", stopped.stderr);
    assert_contains(&stopped.stderr, &["stdout until then:\nbegun (timeout, executed: yes)"]);
}

/// Runs a script whose output ends in `head`, in a fleet or in this process, and returns the exit code of
/// `rockbot`.
async fn code_before_head(fleet: &Fleet, rockbot: &Command, file: &str) -> String {
    let mut shell = Command::new("bash");
    let line = format!(
        "{:?} script run {file} | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}",
        rockbot.as_std().get_program()
    );
    let variables = rockbot.as_std().get_envs();
    shell.args(["-c", &line]).current_dir(fleet.path("")).env_clear();
    shell.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    let exit = Running::start(shell).wait().await;
    exit.assert_code(0);
    exit.stdout.trim().to_owned()
}

#[tokio::test]
async fn script_before_head_keeps_its_exit_code() {
    let fleet = Fleet::new();
    fleet.write("fails.py", "print('x\\n' * 100_000, flush=True)\nraise ValueError('no')\n");
    fleet.write("works.py", "print('x\\n' * 100_000)\n");
    let _handler = fleet.handler_with("handler-1", &[("ROCKBOT_SCRIPTS__RUNNER", "local")]).await;
    for rockbot in [fleet.program("rockbot"), fleet.program_without_bus("rockbot")] {
        assert_eq!(code_before_head(&fleet, &rockbot, "fails.py").await, "1");
        assert_eq!(code_before_head(&fleet, &rockbot, "works.py").await, "0");
    }
}
