//! A gateway whose API watches calls and reads dead letters, and people who use it.

use std::{net::SocketAddr, time::Duration};

use rockbot_contracts::InstanceId;
use rockbot_gateway::{Gateway, GatewayParts, GatewaySection, GatewayServer, Guard};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpStream, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    fleet::Fleet,
    http::{Request, Response, Stream},
};

/// A gateway whose people are named by a proxy.
pub(crate) struct ApiGateway {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl ApiGateway {
    pub(crate) async fn start(fleet: &Fleet, instance: &str) -> Self {
        let text = "address = \"127.0.0.1:0\"\nsign_in = \"proxy\"\nagents = [\"assistant\"]\n\
                    messages_per_minute = 6000\ngroups.talkers = [\"talk\"]\n\
                    groups.staff = [\"talk\", \"watch\", \"content\", \"letters\"]";
        let section: GatewaySection = toml::from_str(text).unwrap();
        let instance = InstanceId::new(instance).unwrap();
        let (bus, store, agents) = (fleet.bus.clone(), fleet.store.clone(), section.agents.clone());
        let parts = GatewayParts::connect(bus.clone(), agents, store, instance).await.unwrap();
        let parts = GatewayParts { watch: Some(bus.clone()), letters: Some(bus), ..parts };
        let server = GatewayServer::bind(&section).await.unwrap();
        let address = server.address();
        let guard = Guard::start(&section, address).unwrap();
        let gateway = Gateway::new(&section, &parts, guard);
        let serving = server.serve(gateway, CancellationToken::new(), Duration::from_secs(5));
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        Self { address, serving }
    }

    /// Returns a person with all rights.
    pub(crate) fn person(&self, name: &str) -> Person {
        self.member(name, "staff")
    }

    /// Returns a person in a group.
    pub(crate) fn member(&self, name: &str, group: &str) -> Person {
        Person { address: self.address, name: name.to_owned(), group: group.to_owned() }
    }
}

impl Drop for ApiGateway {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A person who uses the API.
#[derive(Clone)]
pub(crate) struct Person {
    address: SocketAddr,
    name: String,
    group: String,
}

impl Person {
    fn sign(&self, request: Request) -> Request {
        let origin = format!("http://{}", self.address);
        request
            .header("x-forwarded-email", &self.name)
            .header("x-forwarded-groups", &self.group)
            .header("origin", &origin)
    }

    pub(crate) async fn send(&self, request: Request) -> Response {
        self.sign(request).send(self.address).await
    }

    /// Sends a request and returns the open connection.
    pub(crate) async fn open(&self, request: Request) -> Stream {
        self.sign(request).open(self.address).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Request::get(&format!("/api/v1{path}"))).await
    }

    /// Returns the body of a successful response.
    pub(crate) async fn read(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        response.json()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Request::post(&format!("/api/v1{path}"), body)).await
    }

    /// Creates a conversation and returns its id.
    pub(crate) async fn converse(&self) -> String {
        let created = self.post("/conversations", &json!({"agent": "assistant"})).await;
        assert_eq!(created.status, 201, "{}", created.body);
        created.json()["id"].as_str().unwrap().to_owned()
    }

    /// Sends a message under a key.
    pub(crate) async fn say(&self, conversation: &str, key: &str, text: &str) -> Response {
        let path = format!("/api/v1/conversations/{conversation}/messages");
        let request = Request::post(&path, &json!({"text": text}));
        self.send(request.header("idempotency-key", key)).await
    }

    /// Sends a message as a client that shows requests for input.
    pub(crate) async fn say_with_input(&self, conversation: &str, key: &str) -> Response {
        let path = format!("/api/v1/conversations/{conversation}/messages");
        let request = Request::post(&path, &json!({"text": "go on", "acceptsInput": true}));
        self.send(request.header("idempotency-key", key)).await
    }

    /// Opens a stream, after an event.
    pub(crate) async fn stream(&self, topics: &str, after: Option<&str>) -> EventReader {
        let mut request = Request::get(&format!("/api/v1/stream?topics={topics}"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let stream = self.sign(request).open(self.address).await.stream;
        EventReader { stream, received: Vec::new(), taken: 0 }
    }

    /// Waits until an answer of the conversation is recorded, and returns the history.
    pub(crate) async fn answered(&self, conversation: &str, answers: usize) -> Vec<Value> {
        let path = format!("/conversations/{conversation}");
        within_timeout("the answer", async {
            loop {
                let snapshot = self.read(&path).await;
                let history = snapshot["history"].as_array().unwrap().clone();
                let recorded = history.iter().filter(|item| item["kind"] == "answer").count();
                if recorded >= answers && snapshot["conversation"]["state"] == "idle" {
                    return history;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

/// An event of a stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamEvent {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

/// Reads the events of an open stream.
pub(crate) struct EventReader {
    stream: TcpStream,
    received: Vec<u8>,
    /// Number of events that were taken.
    taken: usize,
}

impl EventReader {
    /// Returns the next event.
    pub(crate) async fn next(&mut self) -> StreamEvent {
        within_timeout("an event", async {
            loop {
                if let Some(event) = parse(&self.received).into_iter().nth(self.taken) {
                    self.taken += 1;
                    return event;
                }
                let read = self.stream.read_buf(&mut self.received).await.unwrap();
                assert!(read > 0, "ended: {}", String::from_utf8_lossy(&self.received));
            }
        })
        .await
    }

    /// Returns the events up to the first one that matches.
    pub(crate) async fn until(
        &mut self,
        matches: impl Fn(&StreamEvent) -> bool,
    ) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let is_last = matches(&event);
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    /// Returns the events up to the first one with this name.
    pub(crate) async fn until_named(&mut self, name: &str) -> StreamEvent {
        self.until(|event| event.name == name).await.pop().unwrap()
    }

    /// Returns the events of conversations up to the first one of this kind.
    pub(crate) async fn until_kind(&mut self, kind: &str) -> Vec<StreamEvent> {
        let mut events = self.until(|event| event.data["kind"] == kind).await;
        events.retain(|event| event.name == "conversation");
        events
    }
}

/// Parses the whole events that have arrived.
fn parse(received: &[u8]) -> Vec<StreamEvent> {
    let received = String::from_utf8_lossy(received);
    let Some((head, chunks)) = received.split_once("\r\n\r\n") else { return Vec::new() };
    assert!(head.starts_with("HTTP/1.1 200"), "{received}");
    let body = whole_chunks(chunks);
    let Some((whole, _)) = body.rsplit_once("\n\n") else { return Vec::new() };
    let events = whole.split("\n\n").filter_map(|block| {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.map(str::to_owned)
        };
        let data = serde_json::from_str(&field("data")?).unwrap();
        Some(StreamEvent { name: field("event")?, id: field("id"), data })
    });
    events.collect()
}

/// Joins the chunks that have arrived as a whole.
fn whole_chunks(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        let Some(chunk) = rest.get(..length) else { break };
        body.push_str(chunk);
        let Some(next) = rest.get(length + 2..) else { break };
        chunks = next;
    }
    body
}
