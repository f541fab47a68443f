//! `rockbot demo --web`.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode,
    header::{COOKIE, ORIGIN, SET_COOKIE},
};
use rockbot_testkit::fixture::within_timeout;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, TIMEOUT, assert_contains};

/// The programs that the tools of the demo run.
const PROGRAMS: [&str; 3] = ["bash", "sh", "wc"];

/// A running `rockbot demo --web`, which ends with the test.
struct Demo {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Demo {
    fn start(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.std_command(&["demo", "--web"]);
        command
            .env("PATH", folder_of_programs(sandbox))
            .env("ROCKBOT_GATEWAY__ADDRESS", "127.0.0.1:0")
            .env("ROCKBOT_BUS__URL", "amqp://user:wrong@127.0.0.1:9/%2f")
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// Reads the output up to a line with `text`, and returns it.
    fn output_until(&mut self, text: &str) -> String {
        let mut output = String::new();
        while !output.contains(text) {
            let read = self.lines.read_line(&mut output).expect("text");
            assert!(read > 0, "{text:?} was not printed:\n{output}");
        }
        output
    }

    fn terminate(&mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        self.child.wait().expect("it ended").code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a folder with the programs of the tools, and nothing else: above all no Node.
fn folder_of_programs(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.temporary().with_file_name("programs");
    fs::create_dir(&folder).expect("created");
    let path = std::env::var_os("PATH").expect("PATH");
    for program in PROGRAMS {
        let found = std::env::split_paths(&path).map(|at| at.join(program)).find(|at| at.exists());
        symlink(found.expect("installed"), folder.join(program)).expect("linked");
    }
    folder
}

/// A browser that signed in.
struct Browser {
    client: Client,
    origin: String,
    cookie: String,
}

impl Browser {
    /// Opens the login link.
    #[expect(clippy::disallowed_methods, reason = "it calls the server under test")]
    async fn sign_in(link: &str) -> Self {
        rockbot_service::tls::install_tls_provider();
        let (origin, code) = link.split_once("/#login=").expect("a login link");
        let client = Client::builder().no_proxy().timeout(TIMEOUT).build().expect("a client");
        let mut browser = Self { client, origin: origin.to_owned(), cookie: String::new() };
        let page = browser.request(Method::GET, "/").send().await.expect("a page");
        assert_eq!(page.status(), StatusCode::OK);
        assert_contains(&page.text().await.expect("text"), &["<script", "/console.js"]);
        let login = json!({"code": code}).to_string();
        let session = browser.post("/session", &login).await;
        let cookie = session.headers()[SET_COOKIE].to_str().expect("text");
        cookie.split(';').next().expect("a cookie").clone_into(&mut browser.cookie);
        browser
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.origin));
        request.header(ORIGIN, &self.origin).header(COOKIE, &self.cookie)
    }

    async fn post(&self, path: &str, body: &str) -> Response {
        let request = self.request(Method::POST, &format!("/api/v1{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.header("idempotency-key", "message-00001").body(body.to_owned());
        request.send().await.and_then(Response::error_for_status).expect("accepted")
    }

    /// Opens a stream of the events from now on.
    async fn stream(&self, topics: &str) -> Events {
        let request = self.request(Method::GET, &format!("/api/v1/stream?topics={topics}"));
        let response = request.send().await.expect("a stream");
        assert_eq!(response.status(), StatusCode::OK);
        Events { response, received: Vec::new() }
    }
}

/// An open stream of events.
struct Events {
    response: Response,
    received: Vec<u8>,
}

impl Events {
    /// Returns the events up to the first that matches.
    async fn until(mut self, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let chunk = within_timeout("an event", self.response.chunk()).await.expect("read");
            let chunk = chunk.unwrap_or_else(|| panic!("the stream ended: {events:?}"));
            self.received.extend_from_slice(&chunk);
            while let Some(end) = self.received.windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = self.received.drain(..end + 2).collect();
                let event = String::from_utf8(event).expect("UTF-8");
                let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) else {
                    continue;
                };
                events.push(serde_json::from_str(data).expect("JSON"));
                if matches(&events[events.len() - 1]) {
                    return events;
                }
            }
        }
    }
}

#[tokio::test]
async fn web_demo_shows_calls_of_a_message_in_the_console() {
    let sandbox = Sandbox::new();
    let mut demo = Demo::start(&sandbox);
    let output = demo.output_until("Ctrl-C ends the demo");
    assert_eq!(output.matches("http://").count(), 1, "{output}");
    assert_contains(&output, &["send a message", "4 tools"]);
    let link = output.split_whitespace().find(|word| word.contains("/#login="));
    let browser = Browser::sign_in(link.expect("a link")).await;

    let new = json!({"agent": "assistant"}).to_string();
    let created: Value = browser.post("/conversations", &new).await.json().await.expect("JSON");
    let id = created["id"].as_str().expect("an id");
    let turn = browser.stream(&format!("conversation:{id}")).await;
    let message = json!({"text": "Show the folder"}).to_string();
    browser.post(&format!("/conversations/{id}/messages"), &message).await;
    let events = turn.until(|event| event["kind"] == "answer").await;
    let mut tools: Vec<_> = events
        .iter()
        .filter(|event| event["kind"] == "tool_finished")
        .map(|event| event["toolName"].as_str().expect("a tool"))
        .collect();
    tools.sort_unstable();
    assert_eq!(tools, ["bash", "list_files", "read_file", "search"]);
    let answer = events[events.len() - 1]["text"].as_str().expect("text").to_owned();
    assert_contains(&answer, &["bus.md:1: # The bus", "The agent touches nothing outside itself."]);

    // The calls were watched before the screen with them was opened.
    browser.stream("calls").await.until(|event| event["tally"]["replied"] == 4).await;
    let calls = browser.request(Method::GET, "/api/v1/calls").send().await.expect("a response");
    let calls: Value = calls.json().await.expect("JSON");
    let calls = calls["calls"].as_array().expect("calls").clone();
    assert_eq!(calls.len(), 4, "{calls:?}");
    for call in &calls {
        assert_eq!((&call["state"], &call["executed"]), (&json!("ok"), &json!("yes")), "{call}");
    }
    assert_eq!(demo.terminate(), Some(0));
    let left = fs::read_dir(sandbox.temporary()).expect("a folder").count();
    assert_eq!(left, 0, "temporary files stay");
}

#[test]
fn used_address_fails_the_web_demo_with_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["demo", "--web"]);
    command.env("ROCKBOT_GATEWAY__ADDRESS", &address).timeout(Duration::from_secs(60));
    let output = crate::sandbox::CommandOutput::new(command.output().expect("it runs"));
    output.assert_code(69, &["demo", "--web"]);
    assert_contains(&output.err, &[&address, "ROCKBOT_GATEWAY__ADDRESS=127.0.0.1:0"]);
    let left = fs::read_dir(sandbox.temporary()).expect("a folder").count();
    assert_eq!(left, 0, "temporary files stay");
}
