//! Dead letters: creation, listing, replay and purge.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Consumer, Publication, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, QueueSpec, SessionId, ToolCallId, ToolError, ToolErrorCode, ToolInvokeRequest,
    ToolInvokeResponse,
    json::Limits,
    topology::{MAX_DELIVERIES, ReplyAddress, tool_invoke},
};
use rockbot_testkit::fixture::{assert_never, next_delivery, reply_address, within_timeout};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    fleet::{Fleet, ProcessGroup, assert_contains},
    process::Running,
};

/// A caller that publishes requests and consumes their replies.
pub(crate) struct RawCaller {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    replies: Consumer,
}

impl RawCaller {
    pub(crate) async fn connect(fleet: &Fleet) -> Self {
        let bus = fleet.bus(|_| ()).await;
        let address = reply_address("caller", "1");
        let replies = Subscription::new(address.queue(), 16);
        let replies = within_timeout("subscribe", bus.consume(replies)).await.expect("subscribed");
        Self { bus, address, replies }
    }

    /// Consumes the queue of tool calls like a handler.
    pub(crate) async fn consume_calls(&self) -> Consumer {
        let work = Subscription::new(QueueSpec::work(&tool_invoke()), 4);
        within_timeout("subscribe", self.bus.consume(work)).await.expect("subscribed")
    }

    async fn send(&self, envelope: Envelope) {
        let publication = Publication::mandatory(tool_invoke(), envelope);
        within_timeout("publish", self.bus.publish(publication)).await.expect("confirmed");
    }

    /// Calls a tool and returns the id of the call.
    pub(crate) async fn call(&self, tool: &str, arguments: &str) -> String {
        let id = ToolCallId::generate();
        let request = ToolInvokeRequest {
            tool_call_id: id.clone(),
            tool_name: tool.to_owned(),
            arguments: arguments.to_owned(),
            session_id: SessionId::generate(),
        };
        let envelope = Envelope::from_payload(&request)
            .with_correlation_id(id.as_str())
            .reply_to(self.address.tool_result())
            .with_source("caller")
            .within(Duration::from_secs(60));
        self.send(envelope).await;
        id.to_string()
    }

    /// Sends a message that no handler can read.
    pub(crate) async fn send_nonsense(&self, text: &str) {
        let body = serde_json::to_vec(text).expect("JSON");
        self.send(Envelope::raw("Nonsense", body)).await;
    }

    async fn reply(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.replies).await;
        let envelope = delivery.envelope().clone();
        within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
        envelope
    }
}

/// Returns the call `poison` to the queue like a handler that crashes on it, and acks all others. Returns
/// the deliveries of the poison and of other messages.
pub(crate) async fn crash_on(poison: &str, mut work: Consumer, others: usize) -> (u32, usize) {
    let (mut poisoned, mut acked) = (0, 0);
    while poisoned < MAX_DELIVERIES || acked < others {
        let delivery = next_delivery(&mut work).await;
        let settlement = if delivery.envelope().correlation_id.as_deref() == Some(poison) {
            poisoned += 1;
            Settlement::Retry
        } else {
            acked += 1;
            Settlement::Ack
        };
        within_timeout("a settlement", delivery.settle(settlement)).await.expect("settled");
    }
    assert_never("another delivery", work.next()).await;
    work.cancel().await;
    (poisoned, acked)
}

/// Repeats a `rockbot` command until its JSON output matches.
async fn run_until(fleet: &Fleet, arguments: &[&str], matches: impl Fn(&Value) -> bool) -> Value {
    within_timeout("the expected output", async {
        loop {
            let output = fleet.run(arguments).await.json();
            if matches(&output) {
                return output;
            }
        }
    })
    .await
}

/// Waits until the queue of tool calls has `count` dead letters.
pub(crate) async fn wait_for_dead_letters(fleet: &Fleet, count: u32) {
    let list = ["--json", "dlq", "list", "tool.invoke"];
    run_until(fleet, &list, |output| output[0]["deadLetters"] == count).await;
}

#[tokio::test]
async fn poison_request_is_dead_lettered_and_replayable() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    let mut caller = RawCaller::connect(&fleet).await;
    let work = caller.consume_calls().await;
    let poison = caller.call("read_file", r#"{"path": "notes.md"}"#).await;
    for _ in 0..10 {
        caller.call("list_files", "{}").await;
    }
    assert_eq!(crash_on(&poison, work, 10).await, (MAX_DELIVERIES, 10));
    wait_for_dead_letters(&fleet, 1).await;

    let output = fleet.run(&["--json", "dlq", "show", "tool.invoke"]).await;
    output.assert_code(0);
    let letter = &output.json()["letters"][0];
    assert_eq!(letter["correlationId"], *poison);
    assert_eq!(
        (&letter["type"], &letter["source"]),
        (&"ToolInvokeRequest".into(), &"caller".into())
    );
    assert_eq!(letter["reason"], "delivered too often");
    assert_eq!(letter["attempt"], 1);
    assert_eq!(letter.get("body"), None, "bodies are shown on request only");
    let id = letter["messageId"].as_str().expect("an id");
    let shown = fleet.run(&["dlq", "show", "tool.invoke", "--id", id, "--body"]).await;
    shown.assert_code(0);
    assert_contains(&shown.stdout, &[&poison, "delivered too often", "notes.md"]);

    let dry_run = fleet.run(&["--json", "dlq", "replay", "tool.invoke", "--dry-run"]).await;
    dry_run.assert_code(0);
    let dry_run = dry_run.json();
    assert_eq!(dry_run["replayed"][0]["correlationId"], *poison);
    assert_eq!((&dry_run["replayed"][0]["sentAs"], &dry_run["left"]), (&Value::Null, &1.into()));
    let list = fleet.run(&["dlq", "list", "--json"]).await.json();
    let invoke = serde_json::json!({"name": "tool.invoke", "exists": true, "ready": 0,
        "consumers": 0, "deadLetters": 1});
    assert_eq!(list[0], invoke);

    let _handler = fleet.handler("handler-1").await;
    let doctor = fleet.run(&["--json", "doctor"]).await;
    doctor.assert_code(0);
    let finding = &doctor.json()["findings"][0];
    assert_eq!(finding["severity"], "warning");
    assert_contains(finding["message"].as_str().expect("text"), &["1 dead letter of tool.invoke"]);

    let replayed = fleet.run(&["--json", "dlq", "replay", "tool.invoke"]).await;
    replayed.assert_code(0);
    let replayed = replayed.json();
    assert_eq!((&replayed["left"], &replayed["error"]), (&0.into(), &Value::Null));
    assert_eq!(replayed["replayed"][0]["messageId"], id);
    assert_ne!(replayed["replayed"][0]["sentAs"], id);
    let reply = caller.reply().await;
    assert_eq!(reply.correlation_id.as_deref(), Some(poison.as_str()));
    let response: ToolInvokeResponse = reply.decode(Limits::default()).expect("a result");
    assert_eq!(response.content, "buy milk\n");
    wait_for_dead_letters(&fleet, 0).await;
}

#[tokio::test]
async fn replayed_call_that_may_have_started_runs_once() {
    let fleet = Fleet::new();
    let mut caller = RawCaller::connect(&fleet).await;
    let work = caller.consume_calls().await;
    let poison = caller.call("bash", r#"{"command": "echo ran >> marker"}"#).await;
    crash_on(&poison, work, 0).await;
    wait_for_dead_letters(&fleet, 1).await;
    let _handler = fleet.handler("handler-1").await;
    fleet.run(&["dlq", "replay", "tool.invoke"]).await.assert_code(0);
    let reply = caller.reply().await;
    let error: ToolError = reply.decode(Limits::default()).expect("an error");
    assert_eq!(error.code, ToolErrorCode::OutcomeUnknown);
    assert!(!fleet.path("marker").exists(), "the command ran");
}

#[tokio::test]
async fn purge_removes_only_selected_dead_letters() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let caller = RawCaller::connect(&fleet).await;
    for text in ["one", "two\u{1b}[2J", "three"] {
        caller.send_nonsense(text).await;
        // Sequentially, so that their order is known.
        let expected = match text {
            "one" => 1,
            "three" => 3,
            _ => 2,
        };
        wait_for_dead_letters(&fleet, expected).await;
    }
    let show = ["--json", "dlq", "show", "tool.invoke", "--body"];
    let letters = fleet.run(&show).await.json()["letters"].clone();
    assert_contains(letters[0]["reason"].as_str().expect("a reason"), &["Nonsense"]);
    assert_eq!(letters[1]["body"], "\"two\\u001b[2J\"");
    let id = letters[1]["messageId"].as_str().expect("an id");

    for (arguments, code, text) in [
        (&["dlq", "purge", "tool.invoke"][..], 64, "--yes"),
        (&["dlq", "purge", "tool.invoke", "--id", "unknown", "--yes"], 1, "unknown"),
        (&["dlq", "replay", "tool.invoke", "--id", "unknown"], 1, "nothing was changed"),
        (&["dlq", "show", "no.such.queue"], 69, "rockbot dlq list"),
        (&["dlq", "list", "no.such.queue"], 69, "rockbot dlq list"),
        (&["dlq", "purge", "tool.invoke", "--dry-run"], 0, ""),
    ] {
        let exit = fleet.run(arguments).await;
        exit.assert_code(code);
        assert_contains(&exit.stderr, &[text]);
    }
    wait_for_dead_letters(&fleet, 3).await;

    let one = ["--json", "dlq", "purge", "tool.invoke", "--id", id, "--yes"];
    assert_eq!(fleet.run(&one).await.json()["deleted"], serde_json::json!([id]));
    let left = fleet.run(&show).await.json()["letters"].clone();
    assert_eq!((&left[0], &left[1]), (&letters[0], &letters[2]));
    fleet.run(&["dlq", "purge", "tool.invoke", "--yes"]).await.assert_code(0);
    wait_for_dead_letters(&fleet, 0).await;
}

#[tokio::test]
async fn doctor_shows_handler_load() {
    let fleet = Fleet::new();
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_SERVICE__INSTANCE", "handler-1").env("ROCKBOT_HANDLER__CONCURRENCY", "1");
    let mut handler = Running::start(command);
    handler.expect_log("ready").await;
    let caller = RawCaller::connect(&fleet).await;
    caller.call("bash", r#"{"command": "echo $$ > pid; sleep 1000"}"#).await;
    let _group = ProcessGroup::from_file(&fleet, "pid").await;
    caller.call("bash", r#"{"command": "true"}"#).await;

    let is_busy = |report: &Value| {
        let load = &report["handlers"][0]["load"];
        load["running"] == 1 && load["waiting"] == 1 && load["oldestMs"].is_u64()
    };
    let report = run_until(&fleet, &["--json", "doctor"], is_busy).await;
    let handler_report = &report["handlers"][0];
    assert_eq!(
        (&handler_report["handler"], &handler_report["instance"]),
        (&"tool-handler".into(), &"handler-1".into())
    );
    assert!(handler_report["version"].is_string(), "{handler_report}");
    assert_eq!(report["replyQueue"]["consumers"], 1);
    let address = report["address"].as_str().expect("an address");
    assert!(address.starts_with("amqp://guest@") && !address.contains("guest:guest"), "{address}");
    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(0);
    assert_contains(&doctor.stdout, &["RUNNING", "OLDEST CALL", "DEAD LETTERS", address]);
}

#[tokio::test]
async fn doctor_warns_about_unconsumed_messages() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let bus = fleet.bus(|_| ()).await;
    let agent = rockbot_contracts::AgentName::new("assistant").expect("a name");
    let key = rockbot_contracts::topology::user_message(&agent);
    let queue = Subscription::new(QueueSpec::work(&key), 1);
    drop(within_timeout("subscribe", bus.consume(queue)).await.expect("subscribed"));
    let message = Publication::mandatory(key, Envelope::raw("Text", b"{}".to_vec()));
    within_timeout("publish", bus.publish(message)).await.expect("confirmed");
    let doctor = within_timeout("the finding", async {
        loop {
            let exit = fleet.run(&["doctor"]).await;
            if exit.code == Some(1) {
                return exit;
            }
        }
    });
    assert_contains(
        &doctor.await.stderr,
        &["1 message in user.message.assistant, but it has no consumer"],
    );
}

#[tokio::test]
async fn doctor_watch_exits_with_last_state() {
    let fleet = Fleet::new();
    let mut lines = fleet.start(&["--json", "doctor", "--watch", "1"]);
    lines.expect_output(r#""handlers":[]"#).await;
    let handler = fleet.handler("handler-1").await;
    lines.expect_output(r#""instance":"handler-1""#).await;
    lines.send(Signal::INT);
    let exit = lines.wait().await;
    exit.assert_code(0);
    let states = exit.stdout.lines().map(serde_json::from_str::<Value>);
    let states: Vec<_> =
        states.map(|state| state.expect("a line of JSON for each check")).collect();
    assert!(states.len() >= 2 && states.iter().all(|state| state["queues"].is_array()));

    let mut watch = fleet.start(&["doctor", "--watch", "1"]);
    watch.expect_output("no problem found").await;
    let caller = RawCaller::connect(&fleet).await;
    drop(handler);
    caller.call("read_file", "{}").await;
    watch.expect_output("in tool.invoke, but it has no consumer").await;
    watch.send(Signal::INT);
    let exit = watch.wait().await;
    // Without any handler, the fleet cannot be used.
    exit.assert_code(69);
    assert_contains(&exit.stderr, &["no tool handler is available"]);
}
