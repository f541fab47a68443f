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
use serde_json::Value;

use crate::{
    fleet::{Fleet, Group, assert_says},
    process::Running,
};

/// Somebody who asks over the bus and hears the answers.
struct Asker {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    answers: Consumer,
}

impl Asker {
    async fn at(fleet: &Fleet) -> Self {
        let bus = fleet.bus(|_| ()).await;
        let address = reply_address("asker", "1");
        let answers = Subscription::new(address.queue(), 16);
        let answers = within_timeout("subscribe", bus.consume(answers)).await.expect("subscribed");
        Self { bus, address, answers }
    }

    /// The place of a handler at the queue of calls.
    async fn handlers_place(&self) -> Consumer {
        let work = Subscription::new(QueueSpec::work(&tool_invoke()), 4);
        within_timeout("subscribe", self.bus.consume(work)).await.expect("subscribed")
    }

    async fn send(&self, envelope: Envelope) {
        let publication = Publication::mandatory(tool_invoke(), envelope);
        within_timeout("publish", self.bus.publish(publication)).await.expect("taken");
    }

    /// Asks for a tool; the id of the call.
    async fn ask(&self, tool: &str, arguments: &str) -> String {
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
            .with_source("asker")
            .within(Duration::from_secs(60));
        self.send(envelope).await;
        id.to_string()
    }

    async fn answer(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.answers).await;
        let envelope = delivery.envelope().clone();
        within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
        envelope
    }
}

/// A handler that dies of the call `poison` each time, and of nothing else: how often it got
/// the poison, and how many other messages.
async fn dies_of(poison: &str, mut work: Consumer, others: usize) -> (u32, usize) {
    let (mut poisoned, mut served) = (0, 0);
    while poisoned < MAX_DELIVERIES || served < others {
        let delivery = next_delivery(&mut work).await;
        let settlement = if delivery.envelope().correlation_id.as_deref() == Some(poison) {
            poisoned += 1;
            Settlement::Retry
        } else {
            served += 1;
            Settlement::Ack
        };
        within_timeout("a settlement", delivery.settle(settlement)).await.expect("settled");
    }
    assert_never("one more delivery", work.next()).await;
    work.cancel().await;
    (poisoned, served)
}

/// Runs `rockbot` until what it says as JSON holds.
async fn until_said(fleet: &Fleet, arguments: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
    within_timeout("it is said", async {
        loop {
            let said = fleet.run(arguments).await.json();
            if holds(&said) {
                return said;
            }
        }
    })
    .await
}

/// Waits until the queue of tool calls has so many dead letters.
async fn dead_letters(fleet: &Fleet, count: u32) {
    let list = ["--json", "dlq", "list", "tool.invoke"];
    until_said(fleet, &list, |said| said[0]["deadLetters"] == count).await;
}

#[tokio::test]
async fn poison_request_is_dead_lettered_and_replayable() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "buy milk\n");
    let mut asker = Asker::at(&fleet).await;
    let work = asker.handlers_place().await;
    let poison = asker.ask("read_file", r#"{"path": "notes.md"}"#).await;
    for _ in 0..10 {
        asker.ask("list_files", "{}").await;
    }
    assert_eq!(dies_of(&poison, work, 10).await, (MAX_DELIVERIES, 10));
    dead_letters(&fleet, 1).await;

    let said = fleet.run(&["--json", "dlq", "show", "tool.invoke"]).await;
    said.assert_code(0);
    let letter = &said.json()["letters"][0];
    assert_eq!(letter["correlationId"], *poison);
    assert_eq!(
        (&letter["type"], &letter["source"]),
        (&"ToolInvokeRequest".into(), &"asker".into())
    );
    assert_eq!(letter["reason"], "delivered too often");
    assert_eq!((&letter["deliveries"], &letter["attempt"]), (&5.into(), &1.into()));
    assert_eq!(letter.get("body"), None, "bodies are shown on request only");
    let id = letter["messageId"].as_str().expect("an id");
    let shown = fleet.run(&["dlq", "show", "tool.invoke", "--id", id, "--body"]).await;
    shown.assert_code(0);
    assert_says(&shown.out, &[&poison, "delivered too often: 5 times", "notes.md"]);

    let rehearsal = fleet.run(&["--json", "dlq", "replay", "tool.invoke", "--dry-run"]).await;
    rehearsal.assert_code(0);
    let rehearsal = rehearsal.json();
    assert_eq!(rehearsal["replayed"][0]["correlationId"], *poison);
    assert_eq!(
        (&rehearsal["replayed"][0]["sentAs"], &rehearsal["left"]),
        (&Value::Null, &1.into())
    );
    let list = fleet.run(&["dlq", "list", "--json"]).await.json();
    let invoke = serde_json::json!({"name": "tool.invoke", "exists": true, "ready": 0,
        "consumers": 0, "deadLetters": 1});
    assert_eq!(list[0], invoke);

    let _handler = fleet.handler("handler-1").await;
    let doctor = fleet.run(&["--json", "doctor"]).await;
    doctor.assert_code(0);
    let finding = &doctor.json()["findings"][0];
    assert_eq!(finding["severity"], "warning");
    assert_says(finding["message"].as_str().expect("text"), &["1 dead letter of tool.invoke"]);

    let replayed = fleet.run(&["--json", "dlq", "replay", "tool.invoke"]).await;
    replayed.assert_code(0);
    let replayed = replayed.json();
    assert_eq!((&replayed["left"], &replayed["error"]), (&0.into(), &Value::Null));
    assert_eq!(replayed["replayed"][0]["messageId"], id);
    assert_ne!(replayed["replayed"][0]["sentAs"], id);
    let answer = asker.answer().await;
    assert_eq!(answer.correlation_id.as_deref(), Some(poison.as_str()));
    let response: ToolInvokeResponse = answer.decode(Limits::default()).expect("a result");
    assert_eq!(response.content, "buy milk\n");
    dead_letters(&fleet, 0).await;
}

#[tokio::test]
async fn replayed_call_that_may_have_started_runs_once() {
    let fleet = Fleet::new();
    let mut asker = Asker::at(&fleet).await;
    let work = asker.handlers_place().await;
    let poison = asker.ask("bash", r#"{"command": "echo ran >> marker"}"#).await;
    dies_of(&poison, work, 0).await;
    dead_letters(&fleet, 1).await;
    let _handler = fleet.handler("handler-1").await;
    fleet.run(&["dlq", "replay", "tool.invoke"]).await.assert_code(0);
    let answer = asker.answer().await;
    let error: ToolError = answer.decode(Limits::default()).expect("an error");
    assert_eq!(error.code, ToolErrorCode::OutcomeUnknown);
    assert!(!fleet.path("marker").exists(), "the command ran");
}

#[tokio::test]
async fn purge_removes_only_selected_dead_letters() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let asker = Asker::at(&fleet).await;
    for text in ["one", "two\u{1b}[2J", "three"] {
        let body = serde_json::to_vec(text).expect("JSON");
        asker.send(Envelope::raw("Nonsense", body)).await;
        // One after the other, so that their order is known.
        let count = |said: &Value| said[0]["deadLetters"].clone();
        let list = ["--json", "dlq", "list", "tool.invoke"];
        let expected = match text {
            "one" => 1,
            "three" => 3,
            _ => 2,
        };
        until_said(&fleet, &list, |said| count(said) == expected).await;
    }
    let show = ["--json", "dlq", "show", "tool.invoke", "--body"];
    let letters = fleet.run(&show).await.json()["letters"].clone();
    assert_says(letters[0]["reason"].as_str().expect("a reason"), &["Nonsense"]);
    assert_eq!(letters[1]["body"], "\"two\\u001b[2J\"");
    let id = letters[1]["messageId"].as_str().expect("an id");

    for (arguments, code, words) in [
        (&["dlq", "purge", "tool.invoke"][..], 64, "--yes"),
        (&["dlq", "purge", "tool.invoke", "--id", "nobody", "--yes"], 1, "nobody"),
        (&["dlq", "replay", "tool.invoke", "--id", "nobody"], 1, "nothing was changed"),
        (&["dlq", "show", "no.such.queue"], 69, "rockbot dlq list"),
        (&["dlq", "list", "no.such.queue"], 69, "rockbot dlq list"),
        (&["dlq", "purge", "tool.invoke", "--dry-run"], 0, ""),
    ] {
        let said = fleet.run(arguments).await;
        said.assert_code(code);
        assert_says(&said.err, &[words]);
    }
    dead_letters(&fleet, 3).await;

    let one = ["--json", "dlq", "purge", "tool.invoke", "--id", id, "--yes"];
    assert_eq!(fleet.run(&one).await.json()["deleted"], serde_json::json!([id]));
    let left = fleet.run(&show).await.json()["letters"].clone();
    assert_eq!((&left[0], &left[1]), (&letters[0], &letters[2]));
    fleet.run(&["dlq", "purge", "tool.invoke", "--yes"]).await.assert_code(0);
    dead_letters(&fleet, 0).await;
}

#[tokio::test]
async fn doctor_shows_handler_load() {
    let fleet = Fleet::new();
    let mut command = fleet.program("rockbot-tool-handler");
    command.env("ROCKBOT_SERVICE__INSTANCE", "handler-1").env("ROCKBOT_HANDLER__CONCURRENCY", "1");
    let mut handler = Running::start(command);
    handler.says("ready").await;
    let asker = Asker::at(&fleet).await;
    asker.ask("bash", r#"{"command": "echo $$ > pid; sleep 1000"}"#).await;
    let _group = Group::from_file(&fleet, "pid").await;
    asker.ask("bash", r#"{"command": "true"}"#).await;

    let busy = |said: &Value| {
        let load = &said["handlers"][0]["load"];
        load["running"] == 1 && load["waiting"] == 1 && load["oldestMs"].is_u64()
    };
    let said = until_said(&fleet, &["--json", "doctor"], busy).await;
    let shown = &said["handlers"][0];
    assert_eq!(
        (&shown["handler"], &shown["instance"]),
        (&"tool-handler".into(), &"handler-1".into())
    );
    assert!(shown["version"].is_string(), "{shown}");
    assert_eq!(said["replyQueue"]["consumers"], 1);
    let address = said["address"].as_str().expect("an address");
    assert!(address.starts_with("amqp://guest@") && !address.contains("guest:guest"), "{address}");
    let doctor = fleet.run(&["doctor"]).await;
    doctor.assert_code(0);
    assert_says(&doctor.out, &["RUNNING", "OLDEST CALL", "DEAD LETTERS", address]);
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
    within_timeout("publish", bus.publish(message)).await.expect("taken");
    let doctor = within_timeout("the verdict", async {
        loop {
            let ended = fleet.run(&["doctor"]).await;
            if ended.code == Some(1) {
                return ended;
            }
        }
    });
    assert_says(
        &doctor.await.err,
        &["1 message in user.message.assistant, but it has no consumer"],
    );
}
