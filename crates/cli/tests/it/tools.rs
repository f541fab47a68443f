//! `rockbot tools` with the embedded handler, and the exit code of everything that can happen.

use std::net::TcpListener;

use crate::workshop::{Said, Workshop, assert_says};

const BUILT_IN: [&str; 8] = [
    "bash",
    "edit_file",
    "execute_python_script",
    "list_files",
    "read_file",
    "search",
    "tool_output",
    "write_file",
];

#[test]
fn list_shows_every_built_in_tool_and_what_it_may_do() {
    let said = Workshop::new().check(&["tools", "list"], 0);
    for tool in BUILT_IN {
        assert!(said.out.lines().any(|line| line.starts_with(&format!("{tool} "))), "{}", said.out);
    }
    let line = |tool: &str| said.out.lines().find(|line| line.starts_with(tool)).expect("listed");
    assert!(line("read_file").contains(" reads "), "{}", said.out);
    assert!(line("bash").contains(" may destroy "), "{}", said.out);
}

#[test]
fn list_as_json_holds_whole_definitions() {
    let tools = Workshop::new().check(&["tools", "list", "--json"], 0).json();
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
fn describe_shows_the_schema_the_hints_and_who_serves_it() {
    let workshop = Workshop::new();
    let said = workshop.check(&["tools", "describe", "read_file"], 0);
    let words = ["read_file — ", "served by", "tool-handler/", "read-only", "\"path\"", "required"];
    assert_says(&said.out, &words);
    let tool = workshop.check(&["tools", "describe", "read_file", "--json"], 0).json();
    assert_eq!((&tool["name"], &tool["hints"]["readOnly"]), (&"read_file".into(), &true.into()));
    workshop.check(&["tools", "describe", "no_such_tool"], 69);
}

#[test]
fn a_call_prints_the_result_as_it_is() {
    let workshop = Workshop::new();
    workshop.write("notes.md", "first\nsecond\n");
    let said = workshop.check(&["tools", "call", "read_file", r#"{"path": "notes.md"}"#], 0);
    assert_eq!(said.out, "first\nsecond\n");
    assert_eq!(said.err, "");
    let said = workshop.check(&["tools", "call", "list_files"], 0);
    assert_says(&said.out, &["notes.md"]);
}

#[test]
fn a_call_as_json_says_what_ran_where_and_how_long() {
    let workshop = Workshop::new();
    workshop.write("notes.md", "first\n");
    let ok = ["--json", "tools", "call", "read_file", r#"{"path": "notes.md"}"#];
    let ok = workshop.check(&ok, 0).json();
    assert_eq!(ok["toolName"], "read_file");
    assert_eq!((&ok["ok"], &ok["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(ok["content"], "first\n");
    assert_eq!(ok["blocks"][0]["type"], "text");
    assert!(ok["toolCallId"].is_string() && ok["elapsedMs"].is_u64(), "{ok}");
    assert!(ok["ranOn"].as_str().expect("a place").starts_with("tool-handler/"), "{ok}");

    let failed = ["--json", "tools", "call", "bash", r#"{"command": "echo no; exit 3"}"#];
    let failed = workshop.check(&failed, 1).json();
    assert_eq!((&failed["ok"], &failed["executed"]), (&false.into(), &"yes".into()));
    assert_eq!(failed["details"]["exitCode"], 3);

    let refused = ["--json", "tools", "call", "read_file", r#"{"path": 7}"#];
    let refused = workshop.check(&refused, 64).json();
    assert_eq!((&refused["ok"], &refused["executed"]), (&false.into(), &"no".into()));
    assert_eq!(
        (&refused["code"], &refused["isRetryable"]),
        (&"invalid_arguments".into(), &false.into())
    );
    assert_says(refused["message"].as_str().expect("text"), &["/path"]);
}

#[test]
fn arguments_come_from_the_line_a_file_or_standard_input() {
    let workshop = Workshop::new();
    workshop.write("arguments.json", r#"{"path": "made.txt", "content": "from a file\n"}"#);
    workshop.check(&["tools", "call", "write_file", "@arguments.json"], 0);
    let mut command = workshop.command(&["tools", "call", "read_file", "-"]);
    let output = command.write_stdin(r#"{"path": "made.txt"}"#).output().expect("it runs");
    let said = Said::of(output);
    said.assert_code(0, &["-"]);
    assert_eq!(said.out, "from a file\n");
    let said = workshop.check(&["tools", "call", "read_file", "@missing.json"], 64);
    assert_says(&said.err, &["cannot open missing.json"]);
}

#[test]
fn a_tool_that_answers_with_an_error_is_exit_code_1() {
    let workshop = Workshop::new();
    let said = workshop.check(&["tools", "call", "bash", r#"{"command": "exit 1"}"#], 1);
    assert_says(&said.out, &["exit code 1"]);
    let said = workshop.check(&["tools", "call", "read_file", r#"{"path": "missing"}"#], 1);
    assert_says(&said.err, &["missing", "executed: yes"]);
}

#[test]
fn what_cannot_be_used_is_exit_code_64() {
    let workshop = Workshop::new();
    workshop.write("bad.toml", "[bus]\nurl = 7\n");
    for (arguments, words) in [
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
        let said = workshop.check(arguments, 64);
        assert_says(&said.err, &[words]);
        assert_eq!(said.out, "", "{arguments:?}");
    }
}

#[test]
fn what_is_not_there_is_exit_code_69() {
    let workshop = Workshop::new();
    let said = workshop.check(&["tools", "call", "no_such_tool"], 69);
    assert_says(&said.err, &["nobody serves no_such_tool", "read_file"]);
    // A port that was free a moment ago has nobody behind it.
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let url = format!("amqp://guest:hunter2@127.0.0.1:{port}/%2f");
    let said = workshop.check(&["--bus", &url, "tools", "list"], 69);
    assert_says(&said.err, &["error:"]);
    assert!(!said.err.contains("hunter2"), "a password is shown: {}", said.err);
}

#[test]
fn what_takes_too_long_is_exit_code_75() {
    let workshop = Workshop::new();
    let call = ["tools", "call", "bash", r#"{"command": "sleep 60"}"#, "--timeout", "1"];
    let said = workshop.check(&call, 75);
    assert_says(&said.err, &["timeout", "executed: yes"]);
}

#[test]
fn file_tools_stay_below_the_root() {
    let workshop = Workshop::new();
    workshop.write("inside.txt", "inside\n");
    let outside = workshop.temporary();
    let outside = outside.to_str().expect("UTF-8");
    let call = ["tools", "call", "read_file", r#"{"path": "../workplace/inside.txt"}"#];
    workshop.check(&["--root", outside, call[0], call[1], call[2], call[3]], 1);
}

#[test]
fn doctor_looks_at_the_embedded_fleet() {
    let workshop = Workshop::new();
    let said = workshop.check(&["doctor"], 0);
    assert_says(&said.out, &["bus ", "round trip", "tool.invoke", "read_file", "tool-handler/"]);
    let said = workshop.check(&["doctor", "--json"], 0).json();
    assert!(said["roundTripMicros"].is_u64() && said["bus"].is_string(), "{said}");
    assert_eq!(said["tools"].as_object().expect("tools").len(), BUILT_IN.len());
    let queues = said["queues"].as_array().expect("queues");
    let invoke = queues.iter().find(|queue| queue["name"] == "tool.invoke").expect("listed");
    assert_eq!((&invoke["exists"], &invoke["consumers"]), (&true.into(), &1.into()));
    assert_eq!((&invoke["ready"], &invoke["deadLetters"]), (&0.into(), &0.into()));
    assert_eq!(said["replyQueue"]["consumers"], 1);
    assert_eq!(said["findings"], serde_json::json!([]));
    let handler = &said["handlers"][0];
    assert_eq!(handler["tools"].as_array().map(Vec::len), Some(BUILT_IN.len()));
    assert_eq!(handler["load"], serde_json::json!({"running": 0, "waiting": 0}));
}
