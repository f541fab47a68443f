//! Invalid messages: a tool handler replies to them and keeps running.

use std::{fs, sync::Arc};

use rockbot_bus::{Bus, Consumer, Publication, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, Executed, Message, QueueSpec, SessionId, ToolCallId, ToolError, ToolErrorCode,
    ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_testkit::fixture::{assert_never, key, next_delivery, reply_address, within_timeout};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    announced_tool::{announce_on_request, tool},
    fleet::{Fleet, ProcessGroup, assert_contains},
    process::Running,
};

/// A client that sends arbitrary messages.
struct RawClient {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    replies: Consumer,
}

impl RawClient {
    async fn connect(fleet: &Fleet) -> Self {
        // Regular processes refuse to send messages over the size limit.
        let bus = fleet.bus(|config| config.limits.bytes = 64 * 1024 * 1024).await;
        let address = reply_address("stranger", "1");
        let replies = Subscription::new(address.queue(), 16);
        let replies = within_timeout("subscribe", bus.consume(replies)).await.expect("subscribed");
        Self { bus, address, replies }
    }

    async fn send(&self, envelope: Envelope) {
        let publication = Publication::mandatory(tool_invoke(), envelope);
        within_timeout("publish", self.bus.publish(publication)).await.expect("confirmed");
    }

    async fn reply(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.replies).await;
        let envelope = delivery.envelope().clone();
        within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
        envelope
    }

    /// Sends an envelope, and checks that it is rejected without execution.
    async fn assert_rejected(&mut self, case: &str, envelope: Envelope, text: &str) {
        let id = ToolCallId::generate();
        let envelope =
            envelope.with_correlation_id(id.as_str()).reply_to(self.address.tool_result());
        self.send(envelope).await;
        let reply = self.reply().await;
        assert_eq!(reply.correlation_id.as_deref(), Some(id.as_str()), "{case}");
        let error: ToolError = reply.decode(Limits::default()).expect("an error");
        assert_eq!(error.code, ToolErrorCode::InvalidArguments, "{case}: {}", error.message);
        assert_eq!(error.executed, Executed::No, "{case}");
        assert!(error.message.contains(text), "{case}: {}", error.message);
    }
}

fn request(tool: &str, arguments: &str) -> ToolInvokeRequest {
    ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: tool.to_owned(),
        arguments: arguments.to_owned(),
        session_id: SessionId::generate(),
    }
}

async fn assert_serving(fleet: &Fleet, handler: &mut Running) {
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
    assert!(handler.is_alive(), "the handler exited");
}

#[tokio::test]
async fn unreadable_request_gets_reply_and_dead_letter() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    let queue = QueueSpec::dead_letters_of(&QueueSpec::work(&tool_invoke()).name);
    let letters = client.bus.consume(Subscription::new(queue, 16));
    let mut letters = within_timeout("subscribe", letters).await.expect("subscribed");

    let body = |text: &str| Envelope::raw(ToolInvokeRequest::TYPE, text.as_bytes().to_vec());
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let mut newer = Envelope::from_payload(&request("list_files", "{}"));
    newer.wire = 2;
    let cases = [
        ("malformed", body(r#"{"toolCallId": "#), "valid"),
        ("not UTF-8", Envelope::raw(ToolInvokeRequest::TYPE, vec![0xff, 0xfe]), "valid"),
        ("empty", body(""), "valid"),
        ("unknown type", Envelope::raw("Nonsense", b"{}".to_vec()), "Nonsense"),
        ("newer wire version", newer, "wire version 2"),
        ("deeply nested", body(&deep), "valid"),
    ];
    for (case, envelope, text) in cases {
        client.assert_rejected(case, envelope, text).await;
        let letter = next_delivery(&mut letters).await;
        let reason = letter.envelope().dead_letter_reason.clone().unwrap_or_default();
        assert!(reason.contains(text), "{case}: {reason}");
        within_timeout("an ack", letter.settle(Settlement::Ack)).await.expect("acked");
    }
    assert_serving(&fleet, &mut handler).await;
}

/// Parser errors quote the text, and the reason of a dead letter must fit a frame: the broker closes the
/// connection on an oversized frame.
#[tokio::test]
async fn oversized_string_payload_keeps_connection_and_log() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    let queue = QueueSpec::dead_letters_of(&QueueSpec::work(&tool_invoke()).name);
    let letters = client.bus.consume(Subscription::new(queue, 16));
    let mut letters = within_timeout("subscribe", letters).await.expect("subscribed");
    let long = format!("\"{}\"", "x".repeat(1_000_000)).into_bytes();
    let envelope = Envelope::raw(ToolInvokeRequest::TYPE, long);
    client.assert_rejected("a long text", envelope, "valid").await;
    let letter = next_delivery(&mut letters).await;
    let reason = letter.envelope().dead_letter_reason.clone().unwrap_or_default();
    assert!(reason.contains("valid") && reason.len() < 10_000, "{} bytes", reason.len());
    assert_serving(&fleet, &mut handler).await;
    handler.send(Signal::TERM);
    let log = handler.wait().await.stderr;
    assert!(!log.contains("broker connection lost"), "a message ended the connection");
    assert!(log.len() < 100_000, "a message filled the log: {} bytes", log.len());
}

#[tokio::test]
async fn unknown_fields_are_ignored_at_any_depth() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "");
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    let known = serde_json::to_string(&request("list_files", "{}")).expect("JSON");
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = known.replacen('{', &format!("{{\"added\": {deep}, "), 1);
    let envelope = Envelope::raw(ToolInvokeRequest::TYPE, body.into_bytes());
    client.send(envelope.reply_to(client.address.tool_result())).await;
    let reply = client.reply().await;
    let response: ToolInvokeResponse = reply.decode(Limits::default()).expect("a result");
    assert!(response.content.contains("notes.md"), "{response:?}");
    assert_serving(&fleet, &mut handler).await;
}

/// The contract has no difference between an absent field and `null`.
#[tokio::test]
async fn request_without_or_with_null_session_id_runs() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "");
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    for session in [None, Some(Value::Null)] {
        let mut body = json!(request("list_files", "{}"));
        let fields = body.as_object_mut().expect("an object");
        fields.remove("sessionId");
        fields.extend(session.map(|session| ("sessionId".to_owned(), session)));
        let envelope = Envelope::raw(ToolInvokeRequest::TYPE, body.to_string().into_bytes());
        client.send(envelope.reply_to(client.address.tool_result())).await;
        let reply = client.reply().await;
        let response: ToolInvokeResponse = reply.decode(Limits::default()).expect("a result");
        assert!(response.content.contains("notes.md"), "{response:?}");
    }
    assert_serving(&fleet, &mut handler).await;
}

#[tokio::test]
async fn handler_validates_arguments() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    let deep = "[".repeat(10_000);
    for (case, arguments, text) in [
        ("wrong type", r#"{"path": 7}"#, "/path"),
        ("unknown key", r#"{"path": "a", "pth": "b"}"#, "pth"),
        ("not an object", "[1]", "object"),
        ("not JSON", "{{{", "JSON"),
        ("too deep", &deep, "deeper"),
    ] {
        let envelope = Envelope::from_payload(&request("read_file", arguments));
        client.assert_rejected(case, envelope, text).await;
    }
    assert_serving(&fleet, &mut handler).await;
}

#[tokio::test]
async fn duplicate_request_runs_and_replies_once() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    let command = "echo started >> marker; echo $$ > pid; until [ -e gate ]; do sleep 0.05; done";
    let arguments = serde_json::json!({ "command": command }).to_string();
    let request = request("bash", &arguments);
    let envelope = || {
        Envelope::from_payload(&request)
            .with_correlation_id(request.tool_call_id.as_str())
            .reply_to(client.address.tool_result())
    };
    for envelope in [envelope(), envelope()] {
        client.send(envelope).await;
    }
    let _group = ProcessGroup::from_file(&fleet, "pid").await;
    // A later call completes, so the handler has received both.
    assert_serving(&fleet, &mut handler).await;
    fleet.write("gate", "");
    let reply = client.reply().await;
    let response: ToolInvokeResponse = reply.decode(Limits::default()).expect("a result");
    assert_eq!(response.tool_call_id, request.tool_call_id);
    assert_never("a second reply", client.replies.next()).await;
    let marker = fs::read_to_string(fleet.path("marker")).expect("the side effect");
    assert_eq!(marker, "started\n", "the command ran more than once");
}

#[tokio::test]
async fn undeliverable_and_unsolicited_replies_are_harmless() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut client = RawClient::connect(&fleet).await;
    // An address without a queue.
    let gone = reply_address("gone", "1").tool_result();
    client.send(Envelope::from_payload(&request("list_files", "{}")).reply_to(gone)).await;
    handler.expect_log("reply dropped: the caller's reply queue is gone").await;
    // The reply would be routed as a request.
    let forged =
        Envelope::from_payload(&request("list_files", "{}")).reply_to(key("user.message.victim"));
    client.send(forged).await;
    handler.expect_log("reply-to is not a tool-result address").await;
    // A reply on the queue of requests.
    let reply = ToolError {
        tool_call_id: ToolCallId::generate(),
        tool_name: "list_files".to_owned(),
        code: ToolErrorCode::Timeout,
        message: "late".to_owned(),
        is_retryable: false,
        executed: Executed::No,
        stages: None,
    };
    client.assert_rejected("a reply", Envelope::from_payload(&reply), "ToolError").await;
    assert_serving(&fleet, &mut handler).await;
}

/// Returns a schema whose references expand to 4^30 alternatives.
fn exponential_schema() -> Value {
    let mut definitions = serde_json::Map::new();
    for number in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        definitions.insert(format!("d{number}"), json!({"anyOf": [next, next, next, next]}));
    }
    definitions.insert("d30".to_owned(), json!({"type": "string"}));
    let parameters = json!({"x": {"$ref": "#/$defs/d0"}});
    json!({"type": "object", "properties": parameters, "$defs": definitions})
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_of_exponential_size_costs_its_own_tool_only() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let bus = fleet.bus(|_| ()).await;
    let announcer = announce_on_request(bus, tool("expand", exponential_schema()), 0).await;

    let listed = fleet.run(&["tools", "list"]).await;
    listed.assert_code(0);
    assert_contains(
        &listed.stdout,
        &["list_files", "tool expand is announced and cannot be called"],
    );
    let called = fleet.run(&["tools", "call", "expand", r#"{"x": 1}"#]).await;
    called.assert_code(69);
    assert_contains(&called.stderr, &["no handler is available for tool expand"]);
    assert_serving(&fleet, &mut handler).await;
    announcer.abort();
}
