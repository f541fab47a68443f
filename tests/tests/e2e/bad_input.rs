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

use crate::{
    fleet::{Fleet, Group},
    process::Running,
};

/// A client that sends whatever it likes.
struct Stranger {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    answers: Consumer,
}

impl Stranger {
    async fn at(fleet: &Fleet) -> Self {
        // Our own processes refuse to send what is over the limit; a stranger would not.
        let bus = fleet.bus(|config| config.limits.bytes = 64 * 1024 * 1024).await;
        let address = reply_address("stranger", "1");
        let answers = Subscription::new(address.queue(), 16);
        let answers = within_timeout("subscribe", bus.consume(answers)).await.expect("subscribed");
        Self { bus, address, answers }
    }

    async fn send(&self, envelope: Envelope) {
        let publication = Publication::mandatory(tool_invoke(), envelope);
        within_timeout("publish", self.bus.publish(publication)).await.expect("taken");
    }

    async fn answer(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.answers).await;
        let envelope = delivery.envelope().clone();
        within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
        envelope
    }

    /// Sends an envelope that must be refused before anything runs.
    async fn is_refused(&mut self, what: &str, envelope: Envelope, words: &str) {
        let id = ToolCallId::generate();
        let envelope =
            envelope.with_correlation_id(id.as_str()).reply_to(self.address.tool_result());
        self.send(envelope).await;
        let answer = self.answer().await;
        assert_eq!(answer.correlation_id.as_deref(), Some(id.as_str()), "{what}");
        let error: ToolError = answer.decode(Limits::default()).expect("an error");
        assert_eq!(error.code, ToolErrorCode::InvalidArguments, "{what}: {}", error.message);
        assert_eq!(error.executed, Executed::No, "{what}");
        assert!(error.message.contains(words), "{what}: {}", error.message);
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

async fn still_serves(fleet: &Fleet, handler: &mut Running) {
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
    assert!(handler.is_alive(), "the handler ended");
}

#[tokio::test]
async fn unreadable_request_gets_reply_and_dead_letter() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut stranger = Stranger::at(&fleet).await;
    let queue = QueueSpec::dead_letters_of(&QueueSpec::work(&tool_invoke()).name);
    let letters = stranger.bus.consume(Subscription::new(queue, 16));
    let mut letters = within_timeout("subscribe", letters).await.expect("subscribed");

    let body = |text: &str| Envelope::raw(ToolInvokeRequest::TYPE, text.as_bytes().to_vec());
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let mut newer = Envelope::from_payload(&request("list_files", "{}"));
    newer.wire = 2;
    let cases = [
        ("malformed", body(r#"{"toolCallId": "#), "valid"),
        ("not UTF-8", Envelope::raw(ToolInvokeRequest::TYPE, vec![0xff, 0xfe]), "valid"),
        ("empty", body(""), "valid"),
        ("of another type", Envelope::raw("Nonsense", b"{}".to_vec()), "Nonsense"),
        ("of a newer wire", newer, "wire version 2"),
        ("deep where a text is expected", body(&deep), "valid"),
        ("too large", body(&"x".repeat(5_000_000)), "over the limit"),
    ];
    for (what, envelope, words) in cases {
        stranger.is_refused(what, envelope, words).await;
        let letter = next_delivery(&mut letters).await;
        let reason = letter.envelope().dead_letter_reason.clone().unwrap_or_default();
        assert!(reason.contains(words), "{what}: {reason}");
        within_timeout("an ack", letter.settle(Settlement::Ack)).await.expect("acked");
    }
    still_serves(&fleet, &mut handler).await;
}

/// What a parser says about a text quotes it, and what a dead letter says about its reason must fit
/// a frame: the broker ends a connection with a frame that is too large, and all calls on it.
#[tokio::test]
async fn oversized_string_payload_keeps_connection_and_log() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut stranger = Stranger::at(&fleet).await;
    let queue = QueueSpec::dead_letters_of(&QueueSpec::work(&tool_invoke()).name);
    let letters = stranger.bus.consume(Subscription::new(queue, 16));
    let mut letters = within_timeout("subscribe", letters).await.expect("subscribed");
    let long = format!("\"{}\"", "x".repeat(1_000_000)).into_bytes();
    let envelope = Envelope::raw(ToolInvokeRequest::TYPE, long);
    stranger.is_refused("a long text", envelope, "valid").await;
    let letter = next_delivery(&mut letters).await;
    let reason = letter.envelope().dead_letter_reason.clone().unwrap_or_default();
    assert!(reason.contains("valid") && reason.len() < 10_000, "{} bytes", reason.len());
    still_serves(&fleet, &mut handler).await;
    handler.send(Signal::TERM);
    let log = handler.ended().await.err;
    assert!(!log.contains("broker connection lost"), "a message ended the connection");
    assert!(log.len() < 100_000, "a message filled the log: {} bytes", log.len());
}

#[tokio::test]
async fn unknown_fields_are_ignored_at_any_depth() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "");
    let mut handler = fleet.handler("handler-1").await;
    let mut stranger = Stranger::at(&fleet).await;
    let known = serde_json::to_string(&request("list_files", "{}")).expect("JSON");
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = known.replacen('{', &format!("{{\"added\": {deep}, "), 1);
    let envelope = Envelope::raw(ToolInvokeRequest::TYPE, body.into_bytes());
    stranger.send(envelope.reply_to(stranger.address.tool_result())).await;
    let answer = stranger.answer().await;
    let response: ToolInvokeResponse = answer.decode(Limits::default()).expect("a result");
    assert!(response.content.contains("notes.md"), "{response:?}");
    still_serves(&fleet, &mut handler).await;
}

#[tokio::test]
async fn handler_validates_arguments() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut stranger = Stranger::at(&fleet).await;
    let deep = "[".repeat(10_000);
    for (what, arguments, words) in [
        ("another type", r#"{"path": 7}"#, "/path"),
        ("an unknown key", r#"{"path": "a", "pth": "b"}"#, "pth"),
        ("not an object", "[1]", "object"),
        ("not JSON", "{{{", "JSON"),
        ("too deep", &deep, "deeper"),
    ] {
        let envelope = Envelope::from_payload(&request("read_file", arguments));
        stranger.is_refused(what, envelope, words).await;
    }
    still_serves(&fleet, &mut handler).await;
}

#[tokio::test]
async fn duplicate_request_runs_and_replies_once() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut stranger = Stranger::at(&fleet).await;
    let command = "echo started >> marker; echo $$ > pid; until [ -e gate ]; do sleep 0.05; done";
    let arguments = serde_json::json!({ "command": command }).to_string();
    let request = request("bash", &arguments);
    let envelope = || {
        Envelope::from_payload(&request)
            .with_correlation_id(request.tool_call_id.as_str())
            .reply_to(stranger.address.tool_result())
    };
    for envelope in [envelope(), envelope()] {
        stranger.send(envelope).await;
    }
    let _group = Group::from_file(&fleet, "pid").await;
    // A call behind the two is answered, so both have been looked at.
    still_serves(&fleet, &mut handler).await;
    fleet.write("gate", "");
    let answer = stranger.answer().await;
    let response: ToolInvokeResponse = answer.decode(Limits::default()).expect("a result");
    assert_eq!(response.tool_call_id, request.tool_call_id);
    assert_never("a second answer", stranger.answers.next()).await;
    let marker = fs::read_to_string(fleet.path("marker")).expect("the side effect");
    assert_eq!(marker, "started\n", "the command ran more than once");
}

#[tokio::test]
async fn undeliverable_and_unsolicited_replies_are_harmless() {
    let fleet = Fleet::new();
    let mut handler = fleet.handler("handler-1").await;
    let mut stranger = Stranger::at(&fleet).await;
    // Nobody consumes this address.
    let gone = reply_address("gone", "1").tool_result();
    stranger.send(Envelope::from_payload(&request("list_files", "{}")).reply_to(gone)).await;
    handler.says("reply dropped: the caller's reply queue is gone").await;
    // A request whose answer would be a request.
    let forged =
        Envelope::from_payload(&request("list_files", "{}")).reply_to(key("user.message.victim"));
    stranger.send(forged).await;
    handler.says("reply-to is not a tool-result address").await;
    // An answer where requests are expected.
    let answer = ToolError {
        tool_call_id: ToolCallId::generate(),
        tool_name: "list_files".to_owned(),
        code: ToolErrorCode::Timeout,
        message: "late".to_owned(),
        is_retryable: false,
        executed: Executed::No,
    };
    stranger.is_refused("an answer", Envelope::from_payload(&answer), "ToolError").await;
    still_serves(&fleet, &mut handler).await;
}
