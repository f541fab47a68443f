//! `rockbot rest`: the check of a file, the list, and calls.

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use crate::sandbox::{CommandOutput, Sandbox, TIMEOUT, assert_contains};

const CONFIGURATION: &str = "[rest]\nconfig = \"rest.json\"\nallow_plain_http = true\n\
                             allow_private = [\"127.0.0.0/8\"]\n";

#[test]
fn check_reports_each_entry() {
    let sandbox = Sandbox::new();
    sandbox.write("rockbot.toml", CONFIGURATION);
    sandbox.write(
        "rest.json",
        r#"{"restTools": {
            "good": {"description": "x", "url": "https://api.example.com/", "colour": 1},
            "unset": {"description": "x", "url": "https://api.example.com/${NO_SUCH_NAME}"}}}"#,
    );
    let arguments = ["--config", "rockbot.toml", "rest", "check", "rest.json"];
    let output = sandbox.check(&arguments, 1);
    let parts = ["good", "ready", "unset", "failed", "NO_SUCH_NAME is not set", "colour"];
    assert_contains(&output.out, &parts);
    let report = sandbox.check(&[&arguments[..], &["--json"]].concat(), 1).json();
    assert_eq!(report["entries"][0]["tools"][0], "good");
    assert_eq!(report["entries"][1]["ready"], false);
    sandbox.write(
        "rest.json",
        r#"{"restTools": {"good": {"description": "x", "url": "https://a/"}}}"#,
    );
    sandbox.check(&arguments, 0);
    sandbox.write("rest.json", "{");
    assert_contains(&sandbox.check(&arguments, 64).err, &["rest.json", "not JSON"]);
    sandbox.check(&["rest", "check", "missing.json"], 64);
    assert_contains(&sandbox.check(&["rest", "list"], 64).err, &["rest.config"]);
}

/// A file with a secret in each place that may hold one: variables, and credentials that are written out.
const WITH_SECRETS: &str = r#"{
    "restTools": {
        "variables": {"description": "x", "url": "https://a.test/${SECRET}", "query": {"key": "${SECRET}"},
            "headers": {"Authorization": "Bearer ${SECRET}"}, "body": {"q": "${SECRET}"}, "method": "POST"},
        "literal": {"description": "x", "url": "https://a.test/?token=hunter2-literal",
            "headers": {"X-Api-Key": "hunter2-literal"}, "query": {"api_key": "hunter2-literal"}}
    },
    "openApi": {"api": {"spec": "api.json", "auth": {"key": {"token": "hunter2-literal"},
        "other": {"value": "${SECRET}"}}, "headers": {"X-Key": "${SECRET}"}, "credentialOrigins": ["https://a.test"]}}
}"#;

/// A file whose entries are not valid because of the values that are secret.
const WITH_INVALID_SECRETS: &str = r#"{
    "restTools": {
        "url": {"description": "x", "url": "${SECRET}"},
        "line": {"description": "x", "url": "https://a.test/", "headers": {"X-Key": "hunter2\n"}},
        "headers": {"description": "x", "url": "https://a.test/", "headers": "Bearer hunter2-literal"},
        "body": {"description": "x", "url": "https://a.test/", "method": "POST", "bodyType": "hunter2"},
        "time": {"description": "x", "url": "https://a.test/", "timeoutMs": "hunter2"},
        "cache": {"description": "x", "url": "https://a.test/", "cache": "hunter2"},
        "queued": {"description": "x", "url": "https://a.test/?key=hunter2-literal", "queue": "none"}
    },
    "openApi": {
        "auth": {"spec": "api.json", "auth": {"key": "${SECRET}"}},
        "field": {"spec": "api.json", "auth": {"key": {"tokens": "${SECRET}"}}},
        "headers": {"spec": "api.json", "headers": ["${SECRET}"]},
        "list": {"spec": "api.json", "readOnly": "${SECRET}"},
        "spec": {"spec": "https://${SECRET}:8a/"}
    }
}"#;

const API: &str = r#"{"openapi": "3.1.0", "servers": [{"url": "https://a.test"}], "paths": {
    "/x": {"get": {"operationId": "readX", "security": [{"key": []}]}}}, "components": {
    "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}}"#;

#[test]
fn check_of_configuration_shows_no_secret_of_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write("rockbot.toml", CONFIGURATION);
    sandbox.write("api.json", API);
    let run = |arguments: &[&str], code| {
        let all = [&["--config", "rockbot.toml"][..], arguments].concat();
        let mut command = sandbox.command(&all);
        command.env("SECRET", "hunter2-of-a-variable").env("ROCKBOT_LOG__LEVEL", "trace");
        let output = CommandOutput::new(command.timeout(TIMEOUT).output().expect("it runs"));
        output.assert_code(code, &all);
        for text in [&output.out, &output.err] {
            assert!(!text.contains("hunter2"), "{arguments:?} shows a secret:\n{text}");
        }
        output
    };
    sandbox.write("rest.json", WITH_SECRETS);
    run(&["--check-config"], 0);
    let report = run(&["rest", "check", "rest.json", "--json"], 0).json();
    let tools: Vec<_> = report["entries"].as_array().expect("entries").iter().collect();
    assert!(tools.iter().all(|entry| entry["tools"][0].is_string()), "{report:#}");
    run(&["rest", "list"], 0);
    run(&["--json", "rest", "list"], 0);
    run(&["tools", "list"], 0);

    sandbox.write("rest.json", WITH_INVALID_SECRETS);
    assert_contains(&run(&["--check-config"], 64).err, &["rest.json: queued: queue \"none\""]);
    run(&["tools", "list"], 64);

    // Cut within a credential.
    let cut = WITH_SECRETS.find("literal\",").expect("a credential") + 4;
    sandbox.write("rest.json", &WITH_SECRETS[..cut]);
    run(&["--check-config"], 0);
    run(&["rest", "check", "rest.json"], 64);
}

#[test]
fn call_runs_in_this_process() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let sandbox = Sandbox::new();
    sandbox.write("rockbot.toml", CONFIGURATION);
    let entry = r#""description": "Weather of a city. More.", "parametersSchema": {
        "properties": {"city": {"type": "string"}}, "required": ["city"]}"#;
    let url = format!("http://127.0.0.1:{port}/${{parameters.city}}");
    sandbox.write(
        "rest.json",
        &format!(r#"{{"restTools": {{"weather": {{"url": "{url}", {entry}}}}}}}"#),
    );
    let rest = |arguments: &[&str], code| {
        let all = [&["--config", "rockbot.toml", "rest"][..], arguments].concat();
        sandbox.check(&all, code)
    };
    let listed = rest(&["list"], 0);
    assert_contains(&listed.out, &["weather", "reads", "Weather of a city."]);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut head = [0; 4096];
        let read = stream.read(&mut head).expect("a request");
        let reply = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\
                     connection: close\r\n\r\n{ \"sun\": 1 }";
        stream.write_all(reply.as_bytes()).expect("sent");
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    let called = rest(&["call", "weather", r#"{"city": "a/b"}"#], 0);
    assert_eq!(called.out, "{\"sun\":1}\n");
    assert!(server.join().expect("it ends").starts_with("GET /a%2Fb HTTP/1.1"));
    rest(&["call", "weather", "{}"], 64);
    rest(&["call", "none"], 69);
}
