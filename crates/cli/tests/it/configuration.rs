//! `--check-config` reports all errors at once.

use crate::sandbox::{CommandOutput, Sandbox, TIMEOUT, assert_contains};

#[test]
fn default_configuration_is_valid() {
    let output = Sandbox::new().check(&["--check-config"], 0);
    assert_eq!(output.out, "the configuration is valid\n");
    Sandbox::new().check(&["tools", "list", "--check-config"], 0);
}

#[test]
fn all_errors_are_reported_at_once() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "bad.toml",
        "[bus]\nurl = \"http://broker\"\n[handler]\nconcurrency = 0\n[log]\nlevel = \"=:=\"\n\
         [fils]\nroot = \"x\"\n[service]\ndrain = 25\n",
    );
    let mut command = sandbox.command(&["--config", "bad.toml", "--check-config"]);
    command.env("ROCKBOT_LOG__FORMAT", "hunter2").env("ROCKBOT_LLM__MAX_ATTEMPTS", "99");
    let output = CommandOutput::new(command.output().expect("it runs"));
    output.assert_code(64, &["--check-config"]);
    let parts = [
        "bus.url",
        "handler.concurrency",
        "[fils]",
        "service.drain",
        "such as \"30s\"",
        "ROCKBOT_LOG__FORMAT",
        "max_attempts",
    ];
    assert_contains(&output.err, &parts);
    assert!(!output.err.contains("hunter2"), "a value is shown: {}", output.err);
}

#[test]
fn unknown_bus_key_is_the_only_error() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "bus.toml",
        "[service]\nprofile = \"production\"\n\
         [bus]\nuri = \"x\"\nurl = \"amqps://rockbot.cli:secret@broker/%2f\"\n",
    );
    let output = sandbox.check(&["--config", "bus.toml", "--check-config"], 64);
    assert_contains(&output.err, &["bus.uri: unknown key"]);
    assert_eq!(output.err.matches("\n  - ").count(), 1, "{}", output.err);
    let output = sandbox.check(&["--bus", "amqp://broker:5672/", "--check-config"], 64);
    assert_contains(&output.err, &["end it with /%2f"]);
}

#[test]
fn unused_server_file_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("mcp.json", "{\"mcpServers\": {}}");
    let bus = ["--bus", "amqp://127.0.0.1:1", "--mcp", "mcp.json"];
    let output = sandbox.check(&[&bus[..], &["tools", "list"]].concat(), 69);
    assert_contains(&output.err, &["--mcp mcp.json is not used"]);
    let output = sandbox.check(&[&bus[..], &["mcp", "check", "mcp.json"]].concat(), 0);
    assert!(!output.err.contains("not used"), "{}", output.err);
    let output = sandbox.check(&["--mcp", "mcp.json", "tools", "list"], 0);
    assert!(!output.err.contains("not used"), "{}", output.err);
}

#[test]
fn embedded_fleet_settings_are_validated() {
    let sandbox = Sandbox::new();
    let arguments = ["--root", "no/such/folder", "--check-config"];
    let mut command = sandbox.command(&arguments);
    let output = CommandOutput::new(
        command.env("ROCKBOT_AGENT__NAME", "unknown").output().expect("it runs"),
    );
    output.assert_code(64, &arguments);
    assert_contains(&output.err, &["no/such/folder", "agent.name", "assistant"]);
}

#[test]
fn invalid_entries_of_servers_file_are_reported() {
    let sandbox = Sandbox::new();
    let file = r#"{"queues": {"slow": {"concurrency": 0}}, "toolTimeout": -1, "mcpServers": {
        "good": {"command": "true"},
        "odd": {"command": "true", "exposure": "sometimes"},
        "queued": {"command": "true", "queue": "absent"}}}"#;
    sandbox.write("mcp.json", file);
    let parts = [
        r#"mcp.json: server "odd": exposure must be one of"#,
        "mcp.json: toolTimeout: ",
        r#"mcp.json: queue "slow": "#,
        r#"mcp.json: server "queued": queue "absent" is unknown"#,
    ];
    let bus: [&[&str]; 2] = [&[], &["--bus", "amqp://127.0.0.1:1/%2f"]];
    for bus in bus {
        let arguments = [bus, &["--mcp", "mcp.json", "--check-config"]].concat();
        let output = sandbox.check(&arguments, 64);
        assert_contains(&output.err, &parts);
        assert_eq!(output.err.matches("\n  - ").count(), parts.len(), "{}", output.err);
    }
    let output = sandbox.check(&["mcp", "check", "mcp.json"], 64);
    assert_contains(&output.out, &parts);
    let output = sandbox.check(&["--mcp", "none.json", "--check-config"], 64);
    assert_contains(&output.err, &["mcp.config: none.json: cannot read it"]);
    let valid = r#"{"toolTimeout": 0, "mcpServers": {"good": {"command": "true"}}}"#;
    sandbox.write("mcp.json", valid);
    sandbox.check(&["--mcp", "mcp.json", "--check-config"], 0);
}

#[test]
fn malformed_file_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("broken.toml", "[bus\n");
    let output = sandbox.check(&["--config", "broken.toml", "--check-config"], 64);
    assert_contains(&output.err, &["broken.toml"]);
}

#[test]
fn store_is_checked_before_connecting() {
    let sandbox = Sandbox::new();
    sandbox.write("calls.db", "this file is longer than a header, but is not a database\n");
    let mut up = sandbox.command(&["--bus", "amqp://127.0.0.1:1", "up"]);
    up.env("ROCKBOT_STORE__URL", "sqlite:calls.db").timeout(TIMEOUT);
    let output = CommandOutput::new(up.output().expect("it runs"));
    output.assert_code(64, &["up"]);
    assert_contains(&output.err, &["store.url", "calls.db"]);
}
