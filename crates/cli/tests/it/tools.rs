//! `rockbot tools` and `rockbot doctor` with the embedded tool handler, and their exit codes.

use std::net::TcpListener;

use crate::sandbox::{CommandOutput, Sandbox, assert_contains};

const BUILT_IN: [&str; 9] = [
    "bash",
    "edit_file",
    "execute_python_script",
    "list_files",
    "read_file",
    "search",
    "tool_output",
    "web_browse",
    "write_file",
];

#[test]
fn list_shows_built_in_tools_and_effects() {
    let output = Sandbox::new().check(&["tools", "list"], 0);
    for tool in BUILT_IN {
        assert!(
            output.out.lines().any(|line| line.starts_with(&format!("{tool} "))),
            "{}",
            output.out
        );
    }
    let line = |tool: &str| output.out.lines().find(|line| line.starts_with(tool)).expect("listed");
    assert!(line("read_file").contains(" reads "), "{}", output.out);
    assert!(line("bash").contains(" may destroy "), "{}", output.out);
}

#[test]
fn tools_of_embedded_agents_are_listed_with_who_serves_them() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.root().join("agents")).expect("a folder");
    sandbox
        .write("agents/writer.md", "+++\ndescription = \"Writes short texts.\"\n+++\nYou write.\n");
    sandbox.write("rockbot.toml", "[agent]\ndirectory = \"agents\"\n");
    let listed =
        sandbox.check(&["--config", "rockbot.toml", "tools", "list", "--agent", "assistant"], 0);
    let line = |tool: &str| listed.out.lines().find(|line| line.starts_with(tool)).expect("listed");
    assert!(line("read_file ").contains("tool-handler/"), "{}", listed.out);
    assert!(line("list_tool_guides ").contains("agent assistant"), "{}", listed.out);
    assert!(line("agent__writer ").contains("agent writer"), "{}", listed.out);
    let agents = sandbox.check(&["--config", "rockbot.toml", "agents"], 0);
    assert_contains(
        &agents.out,
        &["assistant", "running", "tool of assistant", "Writes short texts."],
    );
    sandbox.check(&["--config", "rockbot.toml", "tools", "list", "--agent", "stranger"], 64);
}

#[test]
fn json_list_has_full_definitions() {
    let tools = Sandbox::new().check(&["tools", "list", "--json"], 0).json();
    let tools = tools.as_array().expect("an array");
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(names, BUILT_IN);
    for tool in tools {
        assert_eq!(tool["parameters"]["type"], "object");
        assert!(!tool["description"].as_str().expect("text").is_empty());
        assert!(tool["hints"]["readOnly"].is_boolean() && tool["source"].is_string(), "{tool}");
    }
}

#[test]
fn describe_shows_schema_hints_and_handlers() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["tools", "describe", "read_file"], 0);
    let parts = ["read_file — ", "handlers", "tool-handler/", "read-only", "\"path\"", "required"];
    assert_contains(&output.out, &parts);
    let tool = sandbox.check(&["tools", "describe", "read_file", "--json"], 0).json();
    assert_eq!((&tool["name"], &tool["hints"]["readOnly"]), (&"read_file".into(), &true.into()));
    sandbox.check(&["tools", "describe", "no_such_tool"], 69);
}

#[test]
fn call_prints_unchanged_result() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "first\nsecond\n");
    let output = sandbox.check(&["tools", "call", "read_file", r#"{"path": "notes.md"}"#], 0);
    assert_eq!(output.out, "first\nsecond\n");
    assert_eq!(output.err, "");
    let output = sandbox.check(&["tools", "call", "list_files"], 0);
    assert_contains(&output.out, &["notes.md"]);
}

#[test]
fn failure_before_the_call_says_executed_no() {
    let sandbox = Sandbox::new();
    for (arguments, code, wire_code) in [
        (&["tools", "call", "unknown_tool"][..], 69, "unavailable"),
        (&["tools", "call", "read_file", "@missing.json"], 64, "invalid_arguments"),
        (
            &["tools", "call", "read_file", "{}", "--config", "missing.toml"],
            64,
            "invalid_arguments",
        ),
        (&["--bus", "amqp://127.0.0.1:1", "tools", "call", "read_file"], 69, "unavailable"),
        (&["--mcp", "missing.json", "mcp", "call", "time", "now"], 64, "invalid_arguments"),
        (&["script", "run", "missing.py"], 64, "invalid_arguments"),
    ] {
        let output = sandbox.check(arguments, code);
        assert_contains(&output.err, &[&format!("({wire_code}, executed: no)")]);
        let result = sandbox.check(&[&["--json"][..], arguments].concat(), code).json();
        assert_eq!((&result["ok"], &result["executed"]), (&false.into(), &"no".into()));
        assert_eq!(result["code"], wire_code);
        assert!(output.err.contains(result["message"].as_str().unwrap()), "{}", output.err);
    }
}

#[test]
fn long_file_ends_with_next_offset() {
    let sandbox = Sandbox::new();
    sandbox.write("long.txt", &"a line of forty characters, more or less\n".repeat(55_000));
    let output = sandbox.check(&["tools", "call", "read_file", r#"{"path": "long.txt"}"#], 0);
    let last = output.out.lines().next_back().expect("a line");
    assert!(last.starts_with("[lines 1 to ") && last.contains("continue with offset "), "{last}");
}

#[test]
fn json_call_describes_outcome() {
    let sandbox = Sandbox::new();
    sandbox.write("notes.md", "first\n");
    let ok = ["--json", "tools", "call", "read_file", r#"{"path": "notes.md"}"#];
    let ok = sandbox.check(&ok, 0).json();
    assert_eq!(ok["toolName"], "read_file");
    assert_eq!((&ok["ok"], &ok["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(ok["content"], "first\n");
    assert_eq!(ok["blocks"][0]["type"], "text");
    assert!(ok["toolCallId"].is_string() && ok["elapsedMs"].is_u64(), "{ok}");
    assert!(ok["ranOn"].as_str().expect("a place").starts_with("tool-handler/"), "{ok}");

    let failed = ["--json", "tools", "call", "bash", r#"{"command": "echo no; exit 3"}"#];
    let failed = sandbox.check(&failed, 1).json();
    assert_eq!((&failed["ok"], &failed["executed"]), (&false.into(), &"yes".into()));
    assert_eq!(failed["details"]["exitCode"], 3);

    let rejected = ["--json", "tools", "call", "read_file", r#"{"path": 7}"#];
    let rejected = sandbox.check(&rejected, 64).json();
    assert_eq!((&rejected["ok"], &rejected["executed"]), (&false.into(), &"no".into()));
    assert_eq!(
        (&rejected["code"], &rejected["isRetryable"]),
        (&"invalid_arguments".into(), &false.into())
    );
    assert_contains(rejected["message"].as_str().expect("text"), &["/path"]);
}

#[test]
fn arguments_come_from_option_file_or_stdin() {
    let sandbox = Sandbox::new();
    sandbox.write("arguments.json", r#"{"path": "made.txt", "content": "from a file\n"}"#);
    sandbox.check(&["tools", "call", "write_file", "@arguments.json"], 0);
    let mut command = sandbox.command(&["tools", "call", "read_file", "-"]);
    let output = command.write_stdin(r#"{"path": "made.txt"}"#).output().expect("it runs");
    let output = CommandOutput::new(output);
    output.assert_code(0, &["-"]);
    assert_eq!(output.out, "from a file\n");
    let output = sandbox.check(&["tools", "call", "read_file", "@missing.json"], 64);
    assert_contains(&output.err, &["cannot open missing.json"]);
}

#[test]
fn tool_error_is_exit_code_1() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["tools", "call", "bash", r#"{"command": "exit 1"}"#], 1);
    assert_contains(&output.out, &["exit code 1"]);
    let output = sandbox.check(&["tools", "call", "read_file", r#"{"path": "missing"}"#], 1);
    assert_contains(&output.err, &["missing", "executed: yes"]);
}

#[test]
fn invalid_usage_is_exit_code_64() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.toml", "[bus]\nurl = 7\n");
    for (arguments, parts) in [
        (&["tools", "call", "read_file", "{\"path\":"][..], "JSON"),
        (&["tools", "call", "read_file", "[1]"], "object"),
        (&["tools", "call", "read_file", r#"{"path": 7}"#], "/path"),
        (&["tools", "call", "read_file", r#"{"path": "a", "pth": "b"}"#], "pth"),
        (&["tools", "call", "bash", "{}", "--timeout", "0"], "--timeout"),
        (&["tools", "list", "--jsn"], "--jsn"),
        (&["tool", "list"], "tools"),
        (&["--config", "bad.toml", "tools", "list"], "bus.url"),
        (&["--config", "missing.toml", "tools", "list"], "missing.toml"),
        (&["--bus", "http://127.0.0.1", "tools", "list"], "amqp://"),
        (&["--root", "no/such/folder", "tools", "list"], "no/such/folder"),
    ] {
        let output = sandbox.check(arguments, 64);
        assert_contains(&output.err, &[parts]);
        assert_eq!(output.out, "", "{arguments:?}");
    }
}

#[test]
fn unavailable_tool_or_broker_is_exit_code_69() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["tools", "call", "no_such_tool"], 69);
    assert_contains(&output.err, &["no handler is available for tool no_such_tool", "read_file"]);
    // A port that was just free has no listener.
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let url = format!("amqp://guest:hunter2@127.0.0.1:{port}/%2f");
    let output = sandbox.check(&["--bus", &url, "tools", "list"], 69);
    assert_contains(&output.err, &["error:"]);
    assert!(!output.err.contains("hunter2"), "a password is shown: {}", output.err);
}

#[test]
fn timeout_is_exit_code_75() {
    let sandbox = Sandbox::new();
    let call = ["tools", "call", "bash", r#"{"command": "sleep 60"}"#, "--timeout", "1"];
    let output = sandbox.check(&call, 75);
    assert_contains(&output.err, &["timeout", "executed: yes"]);
}

#[test]
fn file_tools_reject_paths_outside_root() {
    let sandbox = Sandbox::new();
    sandbox.write("inside.txt", "inside\n");
    let outside = sandbox.temporary();
    let outside = outside.to_str().expect("UTF-8");
    let call = ["tools", "call", "read_file", r#"{"path": "../workplace/inside.txt"}"#];
    sandbox.check(&["--root", outside, call[0], call[1], call[2], call[3]], 1);
}

#[test]
fn doctor_reports_embedded_handler_and_queues() {
    let sandbox = Sandbox::new();
    let output = sandbox.check(&["doctor"], 0);
    assert_contains(
        &output.out,
        &["bus ", "round trip", "tool.invoke", "read_file", "tool-handler/"],
    );
    let output = sandbox.check(&["doctor", "--json"], 0).json();
    assert!(output["roundTripMicros"].is_u64() && output["bus"].is_string(), "{output}");
    assert_eq!(output["tools"].as_object().expect("tools").len(), BUILT_IN.len());
    let queues = output["queues"].as_array().expect("queues");
    let invoke = queues.iter().find(|queue| queue["name"] == "tool.invoke").expect("listed");
    assert_eq!((&invoke["exists"], &invoke["consumers"]), (&true.into(), &1.into()));
    assert_eq!((&invoke["ready"], &invoke["deadLetters"]), (&0.into(), &0.into()));
    assert_eq!(output["replyQueue"]["consumers"], 1);
    assert_eq!(output["findings"], serde_json::json!([]));
    let handler = &output["handlers"][0];
    assert_eq!(handler["tools"].as_array().map(Vec::len), Some(BUILT_IN.len()));
    let (load, running) = (&handler["load"], serde_json::json!(0));
    assert_eq!((&load["running"], &load["waiting"]), (&running, &running));
    assert!(load["capacity"].as_u64().is_some_and(|capacity| capacity > 0), "{load}");
}
