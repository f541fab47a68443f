//! Handler pools: separate queues, users and permissions.

use rockbot_bus::{Publication, Subscription};
use rockbot_contracts::{
    ContentTrust, Envelope, HandlerPool, InstanceId, PoolName, QueueSpec, ToolCatalog,
    topology::{tool_catalog_announce, tool_invoke},
};
use rockbot_testkit::fixture::within_timeout;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    agents::use_demo_script,
    fleet::{Fleet, assert_contains},
    identity::SecuredFleet,
    process::Running,
};

const READ: [&str; 4] = ["tools", "call", "read_file", r#"{"path": "notes.md"}"#];
const SCRIPT: [&str; 4] =
    ["tools", "call", "execute_python_script", r#"{"script": "print(6 * 7)"}"#];

const FILES: [(&str, &str); 2] =
    [("ROCKBOT_HANDLER__POOL", "files"), ("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#)];
const CODE: [(&str, &str); 3] = [
    ("ROCKBOT_HANDLER__POOL", "code"),
    ("ROCKBOT_HANDLER__FAMILIES", r#"["scripts"]"#),
    ("ROCKBOT_SCRIPTS__RUNNER", "local"),
];

/// Pools in the configuration of the command line program.
const POOLS: (&str, &str) = ("ROCKBOT_FLEET__POOLS", r#"["files", "code"]"#);

fn pool(name: &str) -> HandlerPool {
    HandlerPool::Named(PoolName::new(name).expect("a name"))
}

async fn run_with_pools(fleet: &Fleet, arguments: &[&str]) -> crate::process::Exit {
    let mut command = fleet.program("rockbot");
    command.env(POOLS.0, POOLS.1).args(arguments);
    Running::start(command).wait().await
}

fn finding(report: &Value, text: &str) -> Option<String> {
    let findings = report["findings"].as_array()?.iter();
    let mut messages = findings.filter_map(|finding| finding["message"].as_str());
    messages.find(|message| message.contains(text)).map(str::to_owned)
}

#[tokio::test]
async fn pools_run_their_own_tools_and_fail_separately() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "The bus carries each call.");
    let _files = fleet.handler_with("files-1", &FILES).await;
    let code = fleet.handler_with("code-1", &CODE).await;
    let mut watch = fleet.program("rockbot");
    watch.env(POOLS.0, POOLS.1).args(["watch", "--json", "--calls", "2"]);
    let mut watch = Running::start(watch);
    watch.expect_log("watching").await;

    // Without a list of pools: the command learns them from the announcements.
    let read = fleet.run(&READ).await;
    read.assert_code(0);
    assert_contains(&read.stdout, &["The bus carries each call."]);
    let script = fleet.run(&SCRIPT).await;
    script.assert_code(0);
    assert_contains(&script.stdout, &["42"]);
    let seen = watch.wait().await;
    seen.assert_code(0);
    let keys = [r#""key":"tool.invoke.pool.files""#, r#""key":"tool.invoke.pool.code""#];
    assert_contains(&seen.stdout, &keys);
    let doctor = fleet.run(&["--json", "doctor"]).await;
    doctor.assert_code(0);
    let report = doctor.json();
    let pools: Vec<_> =
        report["handlers"].as_array().expect("handlers").iter().map(|one| &one["pool"]).collect();
    assert_eq!(pools, ["code", "files"]);

    code.send(Signal::KILL);
    code.wait().await;
    let read = fleet.run(&READ).await;
    read.assert_code(0);
    let script = fleet.run(&SCRIPT).await;
    script.assert_code(69);
    assert_contains(&script.stderr, &["no handler is available for tool execute_python_script"]);
    let doctor = run_with_pools(&fleet, &["--json", "doctor"]).await;
    doctor.assert_code(0);
    let idle = "tool.invoke.pool.code has no consumer: no handler of its pool is running";
    assert!(finding(&doctor.json(), idle).is_some(), "{}", doctor.stdout);
    let listed = run_with_pools(&fleet, &["dlq", "list"]).await;
    listed.assert_code(0);
    assert_contains(
        &listed.stdout,
        &["tool.invoke.pool.code.quarantine", "tool.invoke.pool.files"],
    );
}

#[tokio::test]
async fn tool_of_two_pools_is_offered_once_and_reported() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "The bus carries each call.");
    let mut agent = fleet.program("rockbot-agent");
    use_demo_script(&mut agent);
    let mut agent = Running::start(agent);
    let _files = fleet.handler_with("files-1", &FILES).await;
    let copies = [("ROCKBOT_HANDLER__POOL", "copies"), FILES[1]];
    let copy = fleet.handler_with("copies-1", &copies).await;
    agent.expect_log("several pools announce the same tool").await;
    let list = fleet.run(&["tools", "list"]).await;
    list.assert_code(0);
    assert_contains(&list.stdout, &["read_file !", "bash !", "tool_output "]);
    let shown = "bash of files in pool copies is offered, that of files in pool files is refused";
    assert_contains(&list.stderr, &[shown]);
    let json = fleet.run(&["tools", "list", "--json"]).await.json();
    let read = json.as_array().expect("an array").iter().find(|tool| tool["name"] == "read_file");
    assert_eq!(read.expect("listed")["refused"], json!(["files in pool files"]));
    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(1);
    assert_contains(&doctor.stderr, &["several pools announce the same tool"]);
    assert!(!doctor.stderr.contains("tool_output"), "{}", doctor.stderr);
    copy.send(Signal::TERM);
    copy.wait().await.assert_code(0);
    agent.expect_log("pools announce different tools again").await;
    fleet.run(&["doctor"]).await.assert_code(0);
}

#[tokio::test]
async fn pool_user_serves_and_announces_only_its_own_pool() {
    let secured = SecuredFleet::start().await;
    secured.fleet.write("notes.md", "The bus carries each call.");
    let mut handler = secured.program("rockbot-tool-handler", "tool-handler.files");
    handler.envs(FILES);
    let mut handler = Running::start(handler);
    handler.expect_log("ready").await;
    let mut agent = secured.program("rockbot-agent", "agent.assistant");
    use_demo_script(&mut agent);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    agent.expect_log("handler announced its tools").await;
    secured.cli(&READ).await.assert_code(0);
    secured.cli(&["doctor"]).await.assert_code(0);

    let web = secured.bus("tool-handler.web").await;
    for key in [pool("files").invoke_key(), tool_invoke()] {
        let work = Subscription::new(QueueSpec::work(&key), 1);
        let refused = within_timeout("a refusal", web.consume(work)).await;
        let refused = refused.expect_err("no permission to consume").to_string();
        assert_contains(&refused, &["ACCESS_REFUSED"]);
    }
    let own = Subscription::new(QueueSpec::work(&pool("web").invoke_key()), 1);
    let _own = within_timeout("its own queue", web.consume(own)).await.expect("permitted");

    let forged = ToolCatalog {
        handler: "tool-handler".to_owned(),
        instance: InstanceId::generate(),
        tools: Vec::new(),
        removed: vec!["read_file".to_owned()],
        fingerprint: ToolCatalog::fingerprint_of(&[]),
        version: None,
        load: None,
        invoke_key: Some(pool("files").invoke_key()),
        instructions: Vec::new(),
        guides: Vec::new(),
        script_isolation: None,
    };
    let forged = Envelope::from_payload(&forged).with_trust(ContentTrust::System);
    let forged = Publication::announcement(tool_catalog_announce(), forged);
    web.publish(forged).await.expect("announcements have one key");
    agent.expect_log("announcement ignored: its user does not serve this pool").await;
    assert!(agent.is_alive() && handler.is_alive());

    // A command without the check of its own user, so that the broker decides.
    let mut serving = secured.program("rockbot", "tool-handler.files");
    serving.envs([
        ("ROCKBOT_HANDLER__POOL", "web"),
        ("ROCKBOT_HANDLER__FAMILIES", r#"["web"]"#),
        ("ROCKBOT_STORE__URL", "memory:"),
    ]);
    serving.arg("up");
    let serving = Running::start(serving).wait().await;
    serving.assert_code(64);
    assert_contains(&serving.stderr, &["refused queue tool.invoke.pool.web", "ACCESS_REFUSED"]);

    let mut wrong = secured.program("rockbot-tool-handler", "tool-handler.web");
    wrong.envs(FILES);
    let wrong = Running::start(wrong).wait().await;
    wrong.assert_code(64);
    assert_contains(&wrong.stderr, &["does not serve the files pool"]);
}
