//! `rockbot chat` with an external scripted model server.

use rockbot_contracts::InstanceId;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

use crate::{
    fleet::{Fleet, assert_contains},
    http,
    process::{Exit, Running},
};

/// A relay to the model server. It adds a header with a test id, by which the server separates its
/// journal.
struct Server {
    upstream: String,
    base_url: String,
    test_id: String,
    _relay: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let upstream = http::server("ROCKBOT_TEST_AIMOCK_URL");
        let test_id = InstanceId::generate().to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let host = http::host(&upstream).to_owned();
        let header = format!("X-Test-Id: {test_id}\r\n");
        let mut relay = JoinSet::new();
        relay.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay_connection(client, host.clone(), header.clone()));
            }
        });
        let base_url = format!("http://127.0.0.1:{port}/v1");
        Self { upstream, base_url, test_id, _relay: relay }
    }

    /// Returns the requests of the test with their responses, in order.
    async fn journal(&self) -> Vec<Value> {
        let path = format!("/__aimock/journal?testId={}", self.test_id);
        serde_json::from_str(&http::get(&self.upstream, &path).await).expect("a list")
    }

    async fn chat(&self, fleet: &Fleet, prompt: &str) -> Exit {
        let mut command = fleet.program_without_bus("rockbot");
        command.args(["chat", prompt]).env("OPENAI_BASE_URL", &self.base_url);
        command.env("OPENAI_MODEL", "scripted").env("OPENAI_API_KEY", "sk-of-this-test");
        Running::start(command).wait().await
    }
}

#[tokio::test]
async fn streamed_calls_return_results_in_order() {
    let server = Server::start().await;
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    let chat = server.chat(&fleet, "Please plan my day").await;
    chat.assert_code(0);
    assert_contains(
        &chat.stdout,
        &[
            "← list_files ran on tool-handler/",
            "← read_file ran on tool-handler/",
            "I listed the files and read notes.md: your day is planned.",
        ],
    );
    assert!(!chat.stdout.contains("sk-of-this-test") && !chat.stderr.contains("sk-of-this-test"));

    let journal = server.journal().await;
    let [first, second] = journal.as_slice() else { panic!("{journal:#?}") };
    for entry in [first, second] {
        assert_eq!(entry["response"]["status"], 200);
        let request = &entry["body"];
        assert_eq!((&request["stream"], &request["model"]), (&true.into(), &"scripted".into()));
        let tools = request["tools"].as_array().expect("tools");
        let names: Vec<_> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
        let built_in = [
            "bash",
            "edit_file",
            "execute_python_script",
            "list_files",
            "read_file",
            "search",
            "tool_output",
            "write_file",
        ];
        let missing: Vec<_> =
            built_in.iter().filter(|name| !names.iter().any(|offered| offered == name)).collect();
        assert!(missing.is_empty(), "missing {missing:?} in {names:?}");
        assert!(tools.iter().all(|tool| tool["function"]["parameters"]["type"] == "object"));
    }
    let messages = second["body"]["messages"].as_array().expect("messages");
    let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    let message = messages[1]["content"].as_str().expect("a text");
    assert!(message.starts_with("Please plan my day"), "{message}");
    let calls = &messages[2]["tool_calls"];
    for (position, id, name, text) in
        [(0, "call_list", "list_files", "notes.md"), (1, "call_read", "read_file", "buy milk")]
    {
        assert_eq!(
            (&calls[position]["id"], &calls[position]["function"]["name"]),
            (&id.into(), &name.into())
        );
        let result = &messages[3 + position];
        assert_eq!(result["tool_call_id"], id);
        assert_contains(result["content"].as_str().expect("text"), &[text]);
    }
}

#[tokio::test]
async fn image_of_user_is_a_content_part() {
    let server = Server::start().await;
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    fleet.write("rockbot.toml", "[models.\"scripted\"]\nimages = true\n");
    // A file with the first bytes of a PNG image.
    let image = [&b"\x89PNG\r\n\x1a\n"[..], &[0; 40]].concat();
    std::fs::write(fleet.path("chart"), image).expect("written");
    let mut command = fleet.program_without_bus("rockbot");
    command.args(["--config", "rockbot.toml", "chat", "--image", "chart", "Please plan my day"]);
    command.env("OPENAI_BASE_URL", &server.base_url);
    command.env("OPENAI_MODEL", "scripted").env("OPENAI_API_KEY", "sk-of-this-test");
    Running::start(command).wait().await.assert_code(0);

    let journal = server.journal().await;
    let user = &journal.first().expect("a request")["body"]["messages"][1];
    assert_contains(user["content"][0]["text"].as_str().expect("a text"), &["Please plan my day"]);
    let sent = user["content"][1]["image_url"]["url"].as_str().expect("an image");
    assert!(sent.starts_with("data:image/png;base64,iVBORw0KGgo"), "{sent}");

    let mut command = fleet.program_without_bus("rockbot");
    command.args(["--json", "tools", "call", "read_file", r#"{"path": "chart"}"#]);
    let read = Running::start(command).wait().await.json();
    let block = &read["blocks"][0];
    assert_eq!((&block["type"], &block["mimeType"]), (&"image".into(), &"image/png".into()));
    let refused = fleet.run(&["chat", "--image", "rockbot.toml", "Describe it."]).await;
    refused.assert_code(64);
    assert_contains(&refused.stderr, &["rockbot.toml is no image; use PNG, JPEG, GIF or WebP"]);
}

#[tokio::test]
async fn rate_limited_model_request_is_retried() {
    let server = Server::start().await;
    let chat = server.chat(&Fleet::new(), "Please rate limit me").await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["ok after retry"]);
    let journal = server.journal().await;
    let statuses: Vec<_> = journal.iter().map(|entry| &entry["response"]["status"]).collect();
    assert_eq!(statuses, [429, 200]);
    // The server requests a delay of one second.
    let times: Vec<_> = journal.iter().filter_map(|entry| entry["timestamp"].as_u64()).collect();
    assert!(times[1] - times[0] >= 900, "retried too soon: {times:?}");
}

#[tokio::test]
async fn truncated_model_stream_is_an_error() {
    let server = Server::start().await;
    let chat = server.chat(&Fleet::new(), "Please cut me off").await;
    chat.assert_code(69);
    assert_contains(&chat.stdout, &["These words", "broke before the answer was complete"]);
    assert!(!chat.stdout.contains("in the middle"), "not truncated:\n{}", chat.stdout);
}

#[tokio::test]
async fn unavailable_model_server_exits_with_69() {
    let server = Server::start().await;
    // The script has no such message.
    let refused = server.chat(&Fleet::new(), "xyzzy").await;
    refused.assert_code(69);
    assert_contains(&refused.stdout, &["HTTP 503"]);
    let fleet = Fleet::new();
    let mut command = fleet.program_without_bus("rockbot");
    command.args(["chat", "hello"]).env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let missing = Running::start(command).wait().await;
    missing.assert_code(69);
    assert_contains(&missing.stdout, &["cannot connect to the model server"]);
}

/// Relays the requests and responses of a connection.
async fn relay_connection(client: TcpStream, host: String, header: String) -> std::io::Result<()> {
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = TcpStream::connect(host).await?.into_split();
    tokio::select! {
        relayed = relay_requests(BufReader::new(from_client), to_server, header) => relayed,
        copied = copy(&mut from_server, &mut to_client) => copied.map(|_| ()),
    }
}

/// Relays requests with `header` added after their first line.
async fn relay_requests(
    mut client: BufReader<OwnedReadHalf>,
    mut server: OwnedWriteHalf,
    header: String,
) -> std::io::Result<()> {
    loop {
        let (mut line, mut body) = (String::new(), 0);
        if client.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        line.push_str(&header);
        while line != "\r\n" {
            server.write_all(line.as_bytes()).await?;
            line.clear();
            client.read_line(&mut line).await?;
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                body = length.trim().parse().expect("a length");
            }
        }
        server.write_all(line.as_bytes()).await?;
        copy(&mut (&mut client).take(body), &mut server).await?;
    }
}
