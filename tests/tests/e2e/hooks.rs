//! The audit log and hook commands of real processes.

use std::fs;

use serde_json::Value;

use crate::{
    fleet::{Fleet, assert_contains},
    process::Running,
};

const DENY_BASH: &str = r#"
[audit]
file = "audit.jsonl"

[[hooks]]
tools = ["bash"]
before = ["sh", "-c", "cat > before.json; echo 'no shell today'; exit 1"]

[[hooks]]
tools = ["read_file"]
after = ["sh", "-c", "cat > after.json"]
"#;

fn audit_records(fleet: &Fleet) -> Vec<Value> {
    let text = fs::read_to_string(fleet.path("audit.jsonl")).expect("an audit log");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect()
}

fn json_file(fleet: &Fleet, name: &str) -> Value {
    let text = fs::read(fleet.path(name)).expect("a file written by a hook");
    serde_json::from_slice(&text).expect("JSON")
}

#[tokio::test]
async fn handler_audits_calls_and_obeys_hook_commands() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    let config = fleet.write("handler.toml", DENY_BASH);
    let mut command = fleet.program("rockbot-tool-handler");
    command
        .arg("--config")
        .arg(config)
        .env("ROCKBOT_SERVICE__INSTANCE", "handler-1")
        .env("ROCKBOT_FILES__ROOT", fleet.path(""));
    let mut handler = Running::start(command);
    handler.expect_log("ready").await;

    let read = fleet.run(&["tools", "call", "read_file", r#"{"path": "notes.md"}"#]).await;
    read.assert_code(0);
    let refused = ["--json", "tools", "call", "bash", r#"{"command": "touch ran"}"#];
    let refused = fleet.run(&refused).await;
    let error = refused.json();
    assert_eq!(error["code"], "not_permitted", "{error}");
    assert_eq!(error["executed"], "no", "{error}");
    assert_contains(&error.to_string(), &["no shell today"]);
    assert!(!fleet.path("ran").exists(), "the refused command ran");

    handler.send(rustix::process::Signal::TERM);
    handler.wait().await.assert_code(0);

    let records = audit_records(&fleet);
    assert_eq!(records.len(), 2, "{records:?}");
    for record in &records {
        assert_eq!(record["service"], "tool-handler");
        assert_eq!(record["instance"], "handler-1");
        assert!(record["toolCallId"].is_string() && record["argumentsSha256"].is_string());
        assert!(record.get("arguments").is_none(), "content without its setting: {record}");
    }
    let outcome = |record: &Value| {
        ["tool", "decision", "outcome", "executed"]
            .map(|key| record[key].as_str().map(String::from))
    };
    let expected = |values: [&str; 4]| values.map(|value| Some(value.to_owned()));
    assert_eq!(outcome(&records[0]), expected(["read_file", "allowed", "ok", "yes"]));
    assert_eq!(outcome(&records[1]), expected(["bash", "refused", "not_permitted", "no"]));
    assert_contains(records[1]["reason"].as_str().unwrap_or_default(), &["no shell today"]);

    let before = json_file(&fleet, "before.json");
    assert_eq!(before["event"], "before");
    assert_eq!(before["arguments"]["command"], "touch ran");
    assert_eq!(before["toolCallId"], records[1]["toolCallId"]);
    let after = json_file(&fleet, "after.json");
    assert_eq!((&after["event"], &after["executed"]), (&"after".into(), &"yes".into()));
}

#[tokio::test]
async fn embedded_fleet_obeys_hook_commands() {
    let fleet = Fleet::new();
    let config = fleet.write("rockbot.toml", DENY_BASH).display().to_string();
    let mut command = fleet.program_without_bus("rockbot");
    let arguments =
        ["--config", &config, "--json", "tools", "call", "bash", r#"{"command": "true"}"#];
    command.args(arguments);
    let error = Running::start(command).wait().await.json();
    assert_eq!(
        (&error["code"], &error["executed"]),
        (&"not_permitted".into(), &"no".into()),
        "{error}"
    );
    let records = audit_records(&fleet);
    assert_eq!((records.len(), &records[0]["service"]), (1, &"rockbot".into()));
}

#[tokio::test]
async fn unusable_audit_file_prevents_start() {
    let fleet = Fleet::new();
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_AUDIT__FILE", fleet.path("missing/audit.jsonl"));
    let exit = Running::start(command).wait().await;
    exit.assert_code(64);
    assert_contains(&exit.stderr, &["audit.file", "missing/audit.jsonl", "check the folder"]);
}
