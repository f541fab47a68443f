//! `rockbot rest`: the check of a file, the list, and calls.

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use crate::sandbox::{Sandbox, assert_contains};

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
