//! Remote MCP servers of a process without a broker: the detection of their protocol era, and the calls that they
//! reject.

use std::sync::atomic::{AtomicUsize, Ordering};

use rockbot_contracts::Executed;
use rockbot_testkit::{
    fixture::within_timeout,
    mcp_servers::{HttpPeer, RunningHttpPeer},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::TcpListener,
};

use crate::{
    fleet::{Fleet, assert_contains},
    http,
    process::{Exit, Running},
    site::{Reply, Request, Site},
};

pub(crate) const ENDPOINT: &str = "/mcp";

/// Returns the reply to a request of a client, unless it is a call.
pub(crate) fn session_reply(message: &Value, tools: &[&str]) -> Reply {
    let result = match message["method"].as_str() {
        Some("initialize") => {
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "remote", "version": "1"}})
        }
        Some("tools/list") => {
            let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
            json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()})
        }
        Some("ping") => json!({}),
        _ if message["id"].is_null() => return Reply::status("202 Accepted"),
        _ => {
            let error = json!({"code": -32601, "message": "unknown method"});
            return Reply::json(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        }
    };
    reply_with(message, &result)
}

fn reply_with(message: &Value, result: &Value) -> Reply {
    Reply::json(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

pub(crate) fn text(message: &Value, text: &str) -> Reply {
    reply_with(message, &json!({"content": [{"type": "text", "text": text}]}))
}

/// Returns the message of a request, or `None` if it opens a stream or ends a session.
fn message(request: &Request) -> Option<Value> {
    (request.method() == "POST").then(|| request.json())
}

/// Starts a server over HTTP whose tools have their calls answered by `call`.
pub(crate) async fn server(
    tools: &'static [&'static str],
    call: impl Fn(&Request, &Value) -> Reply + Send + Sync + 'static,
) -> Site {
    Site::with_replies(move |request, _| match message(request) {
        Some(message) if message["method"] == "tools/call" => call(request, &message),
        Some(message) => session_reply(&message, tools),
        None => Reply::status("405 Method Not Allowed"),
    })
    .await
}

/// Starts a server with the tool `now`.
pub(crate) async fn clock() -> Site {
    server(&["now"], |_, message| text(message, "noon")).await
}

/// Starts a server with the tool `now` that is unavailable until `is_up` returns true.
pub(crate) async fn late_clock(is_up: impl Fn() -> bool + Send + Sync + 'static) -> Site {
    Site::with_replies(move |request, _| match message(request) {
        _ if !is_up() => Reply::status("503 Service Unavailable"),
        Some(message) if message["method"] == "tools/call" => text(&message, "noon"),
        Some(message) => session_reply(&message, &["now"]),
        None => Reply::status("405 Method Not Allowed"),
    })
    .await
}

/// Runs `rockbot --mcp` with a server that is named `remote`.
async fn run(fleet: &Fleet, entry: &Value, arguments: &[&str]) -> Exit {
    let file = json!({"mcpServers": {"remote": entry}});
    fleet.write("mcp.json", &file.to_string());
    let mut command = fleet.program_without_bus("rockbot");
    command.args(["--json", "--mcp", "mcp.json"]).args(arguments);
    Running::start(command).wait().await
}

/// Returns the methods of the messages that a server received, and those of other requests.
fn methods(site: &Site) -> Vec<String> {
    let requests = site.requests(ENDPOINT);
    let methods = requests.iter().map(|request| match message(request) {
        Some(message) => message["method"].as_str().unwrap_or_default().to_owned(),
        None => request.method().to_owned(),
    });
    methods.collect()
}

#[tokio::test]
async fn programs_with_unusual_replies_to_the_probe_are_called() {
    let script =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/mcp-bridge/tests/it/servers/startup.py");
    let fleet = Fleet::new();
    for mode in ["result", "exits"] {
        let entry = json!({"command": "python3", "args": [script, mode]});
        let called = run(&fleet, &entry, &["mcp", "call", "remote", "now"]).await;
        called.assert_code(0);
        assert_eq!(called.json()["content"], "noon", "{mode}");
        let listed = run(&fleet, &entry, &["mcp", "list"]).await.json();
        assert_eq!(listed[0]["states"][0]["protocolVersion"], "2025-11-25", "{mode}");
    }
}

#[tokio::test]
async fn sse_server_is_called_by_url_without_type() {
    let server = RunningHttpPeer::start(HttpPeer::EverythingSse);
    let fleet = Fleet::new();
    let arguments = ["mcp", "call", "remote", "echo", r#"{"message": "hello"}"#];
    let called = run(&fleet, &json!({"url": server.url()}), &arguments).await;
    called.assert_code(0);
    assert_eq!(called.json()["content"], "Echo: hello");
}

#[tokio::test]
async fn failed_probe_opens_no_other_session() {
    let other = clock().await;
    let redirect = format!("307 Temporary Redirect\nLocation: {}", other.url(ENDPOINT));
    let unauthorized = "401 Unauthorized\nWWW-Authenticate: Bearer";
    for (case, reply, reason) in [
        ("login", Reply::status(unauthorized), "requires authorization"),
        ("redirect", Reply::status(&redirect), "redirect"),
        ("JSON", Reply::ok("application/json", "{\"jsonrpc\": nonsense"), "JSON"),
        ("event", Reply::ok("text/event-stream", "data: nonsense\n\n"), "JSON"),
        ("page", Reply::ok("text/html", "<h1>hello</h1>"), "neither JSON nor an event stream"),
    ] {
        let site = Site::start([(ENDPOINT, vec![reply])]).await;
        for entry in
            [json!({"url": site.url(ENDPOINT)}), json!({"url": site.url(ENDPOINT), "type": "http"})]
        {
            let fleet = Fleet::new();
            let before = methods(&site).len();
            let described = run(&fleet, &entry, &["mcp", "describe", "remote"]).await;
            described.assert_code(69);
            assert_contains(&described.stderr, &["remote is not connected", reason]);
            assert_eq!(methods(&site)[before..], ["server/discover"], "{case}");
        }
    }
    assert_eq!(methods(&other), [""; 0], "a redirect to another origin was followed");
}

/// Rejects calls of all tools but `good`.
fn reject(_: &Request, message: &Value) -> Reply {
    match message["params"]["name"].as_str() {
        Some("busy") => Reply::status("429 Too Many Requests\nRetry-After: 7"),
        Some("bad") => Reply::status("400 Bad Request"),
        Some("large") => Reply::status("413 Payload Too Large"),
        // After a first round, in which the server works on the call and asks for input.
        Some("asks") if message["params"]["requestState"].is_null() => {
            let state = json!({"resultType": "input_required", "requestState": "worked"});
            reply_with(message, &state)
        }
        Some("asks") => Reply::status("429 Too Many Requests\nRetry-After: 7"),
        Some("stopping") => Reply::status("503 Service Unavailable\nRetry-After: 3"),
        _ => text(message, "ran"),
    }
}

#[tokio::test]
async fn rejected_calls_report_that_they_did_not_run() {
    let site = server(&["busy", "bad", "large", "stopping", "asks", "good"], reject).await;
    let fleet = Fleet::new();
    let entry = json!({"url": site.url(ENDPOINT)});
    for (tool, code, exit, part) in [
        ("busy", "overloaded", 75, "7 s"),
        ("bad", "invalid_arguments", 64, "HTTP 400"),
        ("large", "invalid_arguments", 64, "too large"),
        ("stopping", "overloaded", 75, "3 s"),
    ] {
        let before = methods(&site).len();
        let called = run(&fleet, &entry, &["mcp", "call", "remote", tool]).await;
        assert_rejected(tool, &called, code, exit, part);
        let calls =
            methods(&site)[before..].iter().filter(|method| *method == "tools/call").count();
        assert_eq!(calls, 1, "{tool}");
    }
    let called = run(&fleet, &entry, &["mcp", "call", "remote", "asks"]).await;
    let result = called.json();
    let expected = (json!("outcome_unknown"), json!(Executed::Unknown));
    assert_eq!((&result["code"], &result["executed"]), (&expected.0, &expected.1), "{result}");
    let called = run(&fleet, &entry, &["mcp", "call", "remote", "good"]).await;
    called.assert_code(0);
    assert_eq!(called.json()["executed"], "yes");
}

#[track_caller]
fn assert_rejected(case: &str, called: &Exit, code: &str, exit: i32, part: &str) {
    let result = called.json();
    assert_eq!(
        (&result["code"], &result["executed"]),
        (&json!(code), &json!(Executed::No)),
        "{case}: {result}"
    );
    called.assert_code(exit);
    assert_contains(result["message"].as_str().expect("a message"), &[part]);
}

#[tokio::test]
async fn refused_connection_of_a_call_reports_that_it_did_not_run() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}{ENDPOINT}", listener.local_addr().expect("bound"));
    // Stops listening before the reply that makes the server ready.
    let serving = tokio::spawn(async move {
        let mut listener = Some(listener);
        while let Some(accepting) = &listener {
            let (stream, _) = accepting.accept().await.expect("a connection");
            let mut stream = BufReader::new(stream);
            let reply = match http::read_body(&mut stream, 1 << 20).await {
                Some(body) if !body.is_empty() => {
                    let message: Value = serde_json::from_slice(&body).expect("a message");
                    if message["method"] == "tools/list" {
                        listener = None;
                    }
                    session_reply(&message, &["now"])
                }
                _ => Reply::status("405 Method Not Allowed"),
            };
            if let Reply::Send(bytes) = reply {
                // The client may have disconnected.
                let _ = stream.write_all(&bytes).await;
            }
        }
    });
    let fleet = Fleet::new();
    let called = run(&fleet, &json!({"url": url}), &["mcp", "call", "remote", "now"]).await;
    within_timeout("the stopped server", serving).await.expect("served");
    assert_rejected("refused", &called, "unavailable", 69, "cannot be reached");
}

#[tokio::test]
async fn call_in_an_expired_session_is_repeated_once() {
    let opened = AtomicUsize::new(0);
    let site = Site::with_replies(move |request, _| {
        let Some(message) = message(request) else {
            return Reply::status("405 Method Not Allowed");
        };
        match message["method"].as_str() {
            Some("initialize") => {
                let session = opened.fetch_add(1, Ordering::Relaxed) + 1;
                let reply = session_reply(&message, &[]);
                reply.with_header("Mcp-Session-Id", &session.to_string())
            }
            // The first session has expired when it is called.
            Some("tools/call") if request.header("mcp-session-id") == Some("1") => {
                Reply::status("404 Not Found")
            }
            Some("tools/call") => text(&message, "noon"),
            _ => session_reply(&message, &["now"]),
        }
    })
    .await;
    let fleet = Fleet::new();
    let entry = json!({"url": site.url(ENDPOINT)});
    let called = run(&fleet, &entry, &["mcp", "call", "remote", "now"]).await;
    called.assert_code(0);
    let result = called.json();
    assert_eq!((&result["content"], &result["executed"]), (&json!("noon"), &json!("yes")));
    assert_eq!(called.stderr, "", "the repetition is silent");
    let methods = methods(&site);
    let count = |method: &str| methods.iter().filter(|other| *other == method).count();
    // The rejected call, and the one that ran.
    assert_eq!((count("initialize"), count("tools/call")), (2, 2), "{methods:?}");
}

#[tokio::test]
async fn command_without_a_terminal_declares_no_elicitation() {
    let site = clock().await;
    let fleet = Fleet::new();
    let called =
        run(&fleet, &json!({"url": site.url(ENDPOINT)}), &["mcp", "call", "remote", "now"]).await;
    called.assert_code(0);
    let messages: Vec<_> = site.requests(ENDPOINT).iter().filter_map(message).collect();
    let find = |method: &str| {
        let found = messages.iter().find(|message| message["method"] == method);
        &found.unwrap_or_else(|| panic!("no {method}: {messages:?}"))["params"]
    };
    let meta = "io.modelcontextprotocol/clientCapabilities";
    for capabilities in
        [&find("initialize")["capabilities"], &find("server/discover")["_meta"][meta]]
    {
        assert!(capabilities.is_object(), "{messages:?}");
        assert_eq!(capabilities["elicitation"], Value::Null, "{messages:?}");
    }
    // In the newer era, each call declares what its client can do.
    let script =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/mcp-bridge/tests/it/servers/asking.py");
    for era in ["handshake", "stateless"] {
        let entry = json!({"command": "python3", "args": [script, era]});
        let called = run(&fleet, &entry, &["mcp", "call", "remote", "declared"]).await;
        called.assert_code(0);
        assert_eq!(called.json()["content"], "[]", "{era}");
    }
}
