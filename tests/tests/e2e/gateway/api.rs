//! The REST API and its event stream on a broker.

use std::collections::BTreeSet;

use rockbot_gateway::{FaceName, NamePatterns, Right, Token, TokenFile};
use rockbot_testkit::fixture::{test_broker_url, within_timeout};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::harness::GatewayFleet;
use crate::process::Running;

/// A program that uses the API of a gateway.
struct Client {
    address: String,
    token: String,
}

impl Client {
    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let Self { address, token } = self;
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let length = body.len();
        let request = format!(
            "{method} /api/v1{path} HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream
    }

    async fn call(&self, method: &str, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = self.send(method, path, headers, &body).await;
        let mut response = String::new();
        let read = stream.read_to_string(&mut response);
        within_timeout("a response", read).await.expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), serde_json::from_str(body).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, "", &Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn say(&self, conversation: &str, text: &str) -> Value {
        let path = format!("/conversations/{conversation}/messages");
        let key = "idempotency-key: key-00001\r\n";
        let (status, sent) = self.call("POST", &path, key, &json!({"text": text})).await;
        assert_eq!(status, 202, "{sent}");
        sent
    }

    /// Opens a stream, after an event.
    async fn stream(&self, topics: &str, after: Option<&str>) -> EventReader {
        let after = after.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let stream = self.send("GET", &format!("/stream?topics={topics}"), &after, "").await;
        EventReader { stream, received: String::new(), taken: 0 }
    }
}

/// Reads the events of a stream.
struct EventReader {
    stream: TcpStream,
    received: String,
    taken: usize,
}

impl EventReader {
    /// Returns the id and data of the events up to the first that matches.
    async fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        loop {
            let next = Box::pin(within_timeout("an event", self.next()));
            let (id, data) = next.await;
            let is_last = matches(&data);
            events.push((id, data));
            if is_last {
                return events;
            }
        }
    }

    async fn next(&mut self) -> (String, Value) {
        loop {
            let whole = self.received.rfind("\n\n").unwrap_or(0);
            let mut events =
                self.received[..whole].split("\n\n").filter(|event| event.contains("data: "));
            if let Some(event) = events.nth(self.taken) {
                self.taken += 1;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let data = field("data: ").expect("data");
                let id = field("id: ").unwrap_or_default().to_owned();
                return (id, serde_json::from_str(data).expect("JSON"));
            }
            let mut bytes = [0; 8192];
            let read = self.stream.read(&mut bytes).await.expect("read");
            assert!(read > 0, "the stream ended: {}", self.received);
            self.received.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }
}

/// Starts a gateway that watches calls and reads dead letters.
async fn gateway(fleet: &GatewayFleet) -> (Running, Client) {
    let (mut token, secret) =
        Token::generate("api", BTreeSet::from([FaceName::Console])).expect("a token");
    token.rights = Right::ALL.into();
    token.agents = NamePatterns::all();
    TokenFile { tokens: vec![token] }.write(&fleet.fleet.path("tokens.toml")).expect("written");
    let broker = test_broker_url();
    let settings = [
        ("ROCKBOT_GATEWAY__WATCH__URL", broker.as_str()),
        ("ROCKBOT_GATEWAY__LETTERS__URL", broker.as_str()),
    ];
    let (gateway, address) = fleet.gateway_with("gateway-0", &settings).await;
    (gateway, Client { address, token: secret })
}

#[tokio::test]
async fn conversation_continues_after_cuts_and_a_killed_gateway() {
    let fleet = GatewayFleet::start().await;
    let (running, client) = gateway(&fleet).await;
    let new = json!({"agent": "assistant"});
    let (status, created) = client.call("POST", "/conversations", "", &new).await;
    assert_eq!(status, 201, "{created}");
    let id = created["id"].as_str().expect("an id").to_owned();
    let topics = format!("conversation:{id},calls");
    let mut stream = client.stream(&topics, None).await;
    stream.until(|data| data["snapshot"] == true).await;
    let sent = client.say(&id, "tools").await;
    for _ in 0..4 {
        assert_eq!(client.say(&id, "tools").await["messageId"], sent["messageId"]);
    }
    let started = stream.until(|data| data["kind"] == "tool_started").await;
    let (last, data) = started.last().expect("an event");
    assert!(data["arguments"].as_str().expect("text").contains("runs.txt"), "{data}");
    let last = last.clone();
    drop(stream);
    let mut stream = client.stream(&topics, Some(&last)).await;
    let rest = stream.until(|data| data["kind"] == "answer").await;
    let finished = rest.iter().find(|(_, data)| data["kind"] == "tool_finished");
    assert!(finished.expect("the end of the call").1["result"].to_string().contains("a result"));
    let answer = &rest.last().expect("an event").1;
    assert!(answer["text"].as_str().expect("text").starts_with("It says:"), "{answer}");
    let calls = client.get("/calls?filter=tool:bash").await;
    assert_eq!(calls["calls"][0]["executed"], "yes", "{calls}");
    let fleet_state = client.get("/fleet").await;
    assert_eq!(fleet_state["agents"][0]["state"], "running", "{fleet_state}");
    assert_eq!(fleet_state["handlers"].as_array().map(Vec::len), Some(1), "{fleet_state}");
    running.send(Signal::KILL);
    drop((running, stream));
    let (_restarted, client) = gateway(&fleet).await;
    let repeated = client.say(&id, "tools").await;
    assert_eq!(
        (&repeated["messageId"], &repeated["state"]),
        (&sent["messageId"], &json!("repeated"))
    );
    let snapshot = client.get(&format!("/conversations/{id}")).await;
    let history = snapshot["history"].as_array().expect("items");
    assert_eq!(history.iter().filter(|item| item["kind"] == "answer").count(), 1, "{snapshot}");
    assert_eq!(fleet.runs(), 1);
    let mut stream = client.stream(&topics, Some(&last)).await;
    let reset = stream.until(|data| data["reason"] == "epoch").await;
    assert_eq!(reset.last().expect("an event").1["topic"], format!("conversation:{id}"));
}
