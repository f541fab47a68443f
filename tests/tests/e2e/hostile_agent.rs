//! An agent with its own broker user that attacks tool handlers with a common journal in PostgreSQL.

use std::{collections::BTreeMap, fs, ops::Range, pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_bus::{Bus, Consumer, Publication, PublishError, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, Executed, Message, QueueSpec, SessionId, ToolCallId, ToolError, ToolErrorCode,
    ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    topology::{MAX_DELIVERIES, ReplyAddress, tool_invoke},
};
use rockbot_testkit::{
    fixture::{next_delivery, reply_address, wait_until, within_timeout},
    store_fixture::test_postgres_url,
};
use rockbot_tools::ToolFailure;
use rustix::process::Signal;
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    caller::Caller,
    fleet::ProcessGroup,
    identity::SecuredFleet,
    oversized_messages::TOLERATED_KIB,
    process::{Exit, Running, memory_kib},
};

/// More copies of a call than a handler holds calls.
const COPIES: usize = 1300;
/// Length of a limited queue.
const LENGTH: u32 = 10;
/// Calls that the handler of a limited queue runs.
const RUNNING: usize = 2;
/// Calls that it holds.
const HELD: usize = 6;
/// More calls than a limited queue and its handler hold.
const CALLS: usize = 60;
/// Length of a limited dead-letter queue, above the letters that a handler publishes for senders.
const LETTERS: u32 = 600;
/// More unreadable requests than that.
const UNREADABLE: usize = 700;

/// Size of a body beyond what the broker accepts.
const OVERSIZED: usize = 30 * 1024 * 1024;

/// Time within which a full queue rejects a call.
const REJECTED_WITHIN: Duration = Duration::from_secs(10);
/// Concurrent sends of many messages.
const SENDS: usize = 64;

/// Time limit of a call that waits for [`HostileAgent::open_gate`].
const TIMEOUT: Duration = Duration::from_secs(55);

/// The fleet, and an agent of it.
struct HostileAgent {
    secured: SecuredFleet,
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    replies: Consumer,
}

impl HostileAgent {
    async fn start() -> Self {
        let secured = SecuredFleet::start().await;
        let bus = secured.bus("agent.mallory").await;
        let address = reply_address("mallory", "1");
        let replies = Subscription::new(address.queue(), 16);
        let replies = within_timeout("subscribe", bus.consume(replies)).await.expect("subscribed");
        Self { secured, bus, address, replies }
    }

    /// Starts a handler with the journal of all handlers.
    async fn handler(&self, instance: &str, config: &str) -> Running {
        let file = self.secured.fleet.write(&format!("{instance}.toml"), config);
        let mut command = self.secured.program("rockbot-tool-handler", "tool-handler");
        command
            .arg("--config")
            .arg(file)
            .env("ROCKBOT_SERVICE__INSTANCE", instance)
            .env("ROCKBOT_STORE__URL", test_postgres_url());
        let mut handler = Running::start(command);
        handler.expect_log("ready").await;
        handler
    }

    /// Returns a new call of a command.
    fn command(&self, command: &str) -> ToolInvokeRequest {
        ToolInvokeRequest {
            tool_call_id: ToolCallId::generate(),
            tool_name: "bash".to_owned(),
            arguments: json!({ "command": command }).to_string(),
            session_id: SessionId::generate(),
        }
    }

    fn envelope(&self, request: &ToolInvokeRequest) -> Envelope {
        Envelope::from_payload(request)
            .with_correlation_id(request.tool_call_id.as_str())
            .with_source("mallory")
            .reply_to(self.address.tool_result())
            .within(TIMEOUT)
    }

    async fn send(&self, envelope: Envelope) {
        self.try_send(envelope).await.expect("confirmed");
    }

    /// Sends a request with the header in which the broker counts its deliveries, at the maximum.
    async fn send_with_delivery_count(&self, request: &ToolInvokeRequest) {
        let Envelope { message_id, body, .. } = self.envelope(request);
        let user = self.secured.name("agent.mallory");
        let message = json!({
            "routing_key": tool_invoke().as_str(),
            "payload": String::from_utf8(body).expect("JSON"),
            "payload_encoding": "string",
            "properties": {
                "user_id": user, "type": ToolInvokeRequest::TYPE, "message_id": message_id.as_str(),
                "correlation_id": request.tool_call_id.as_str(), "content_type": Envelope::CONTENT_TYPE,
                "reply_to": self.address.tool_result().as_str(), "delivery_mode": 2,
                "headers": {
                    "rb-source": "mallory", "rb-timeout-ms": TIMEOUT.as_millis() as u64,
                    "x-delivery-count": u32::MAX,
                },
            },
        });
        let exchange = &self.secured.fleet.namespace;
        self.secured.vhost.publish_raw(&user, exchange, &message).await;
    }

    async fn try_send(&self, envelope: Envelope) -> Result<(), PublishError> {
        let publication = Publication::mandatory(tool_invoke(), envelope);
        within_timeout("publish", self.bus.publish(publication)).await
    }

    async fn send_all(&self, envelopes: impl Iterator<Item = Envelope>) {
        stream::iter(envelopes).for_each_concurrent(SENDS, |envelope| self.send(envelope)).await;
    }

    async fn reply(&mut self) -> Result<ToolInvokeResponse, ToolError> {
        let delivery = next_delivery(&mut self.replies).await;
        let envelope = delivery.envelope().clone();
        within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
        if envelope.message_type() == ToolInvokeResponse::TYPE {
            return Ok(envelope.decode(Limits::default()).expect("a result"));
        }
        Err(envelope.decode(Limits::default()).expect("an error"))
    }

    fn open_gate(&self) {
        self.secured.fleet.write("gate", "");
    }

    /// Returns the number of each line that commands wrote.
    fn lines(&self) -> BTreeMap<String, usize> {
        let text = fs::read_to_string(self.secured.fleet.path("lines")).unwrap_or_default();
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Calls a tool as another agent does.
    async fn call_of_another(&self) -> Exit {
        self.secured.cli(&["--json", "tools", "call", "list_files"]).await
    }
}

/// Returns a command that writes a line, and then waits for the gate.
fn gated(line: &str) -> String {
    format!("echo {line} >> lines; until [ -e gate ]; do sleep 0.05; done")
}

async fn assert_stops(handlers: Vec<Running>) {
    for handler in handlers {
        handler.send(Signal::TERM);
        handler.wait().await.assert_code(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_call_do_not_stop_handlers() {
    let mut agent = HostileAgent::start().await;
    let handlers = vec![agent.handler("handler-1", "").await, agent.handler("handler-2", "").await];
    let request = agent.command(&format!("echo $$ > pid; {}", gated("ran")));
    agent.send(agent.envelope(&request)).await;
    let _group = ProcessGroup::from_file(&agent.secured.fleet, "pid").await;
    agent.send_all((0..COPIES).map(|_| agent.envelope(&request))).await;
    agent.call_of_another().await.assert_code(0);

    agent.open_gate();
    let reply = agent.reply().await.expect("its result");
    assert_eq!(reply.tool_call_id, request.tool_call_id);
    assert_stops(handlers).await;
    assert_eq!(agent.lines(), BTreeMap::from([("ran".to_owned(), 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_rejects_calls_that_do_not_run() {
    let agent = HostileAgent::start().await;
    let config = format!(
        "[handler]\nconcurrency = {}\nbacklog = {}\n",
        // One tool of many gets half.
        2 * RUNNING,
        HELD - RUNNING
    );
    let handlers = vec![agent.handler("handler-1", &config).await];
    agent.secured.limit_queue("tool.invoke", LENGTH).await;
    let caller = Caller::for_agent("mallory", agent.bus.clone(), TIMEOUT);
    let mut calls = JoinSet::new();
    let mut send = |numbers: Range<usize>| {
        for number in numbers {
            let caller = caller.clone();
            let command = json!({"command": gated(&number.to_string())});
            calls.spawn(async move { (number, caller.call("bash", command).await) });
        }
    };
    // The handler holds all that it takes before the queue is filled, which then stays full.
    send(0..HELD);
    wait_until("running calls", || agent.lines().len() == RUNNING).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    within_timeout("an empty queue", async {
        while agent.secured.waiting("tool.invoke").await > 0 {
            ticks.tick().await;
        }
    })
    .await;
    send(HELD..CALLS);
    // A broker may accept a burst before its channels know that the queue is full.
    within_timeout("a full queue", async {
        while agent.secured.waiting("tool.invoke").await < LENGTH {
            ticks.tick().await;
        }
    })
    .await;
    send(CALLS..CALLS + HELD);
    let first = within_timeout("a rejection", calls.join_next()).await;
    let (number, outcome) = first.expect("a call").expect("no panic");
    assert_rejected(&outcome.expect_err("the queue is full"));
    let mut rejected = vec![number];
    // The broker may accept a few more messages than the limit.
    let mut other = pin!(agent.call_of_another());
    match timeout(REJECTED_WITHIN, &mut other).await {
        Ok(ended) => {
            let outcome = ended.json();
            // The queue rejects it, or it has capacity of the handler that other tools cannot use.
            if outcome["code"] == "overloaded" {
                ended.assert_code(75);
                assert_eq!(outcome["executed"], "no");
            } else {
                ended.assert_code(0);
            }
            agent.open_gate();
        }
        Err(_) => {
            agent.open_gate();
            other.await.assert_code(0);
        }
    }

    let mut succeeded = Vec::new();
    while let Some(call) = calls.join_next().await {
        let (number, outcome) = call.expect("no panic");
        match outcome {
            Ok(_) => succeeded.push(number),
            Err(failure) => {
                assert_rejected(&failure);
                rejected.push(number);
            }
        }
    }
    println!("{} calls rejected, {} ran", rejected.len(), succeeded.len());
    let ran = succeeded.into_iter().map(|number| (number.to_string(), 1)).collect();
    assert_eq!(agent.lines(), ran);
    agent.call_of_another().await.assert_code(0);
    assert_stops(handlers).await;
}

/// The broker refuses what does not fit, whatever a sender claims about it.
#[tokio::test(flavor = "multi_thread")]
async fn full_queue_refuses_copies_forged_retries_and_oversized_bodies() {
    let mut agent = HostileAgent::start().await;
    let handler = agent.handler("handler-1", "[handler]\nconcurrency = 4\nbacklog = 4\n").await;
    agent.call_of_another().await.assert_code(0);
    agent.secured.limit_queue("tool.invoke", LENGTH).await;
    let before = memory_kib(handler.pid(), "VmHWM");
    // It holds what it has prefetched, and then the queue stays full.
    handler.send(Signal::STOP);
    let (mut accepted, mut lines) = (Vec::new(), BTreeMap::new());
    let refused = loop {
        let line = accepted.len().to_string();
        let request = agent.command(&gated(&line));
        if let Err(error) = agent.try_send(agent.envelope(&request)).await {
            break error;
        }
        lines.insert(request.tool_call_id.clone(), line);
        accepted.push(request);
        assert!(accepted.len() < CALLS, "the queue has no limit");
    };
    assert!(matches!(refused, PublishError::Refused { .. }), "{refused}");

    let first = &accepted[0];
    for _ in 0..HELD {
        for envelope in [agent.envelope(first), agent.envelope(first).next_attempt()] {
            let error = agent.try_send(envelope).await.expect_err("the queue is full");
            assert!(matches!(error, PublishError::Refused { .. }), "{error}");
        }
    }
    let unlimited = Limits { bytes: 2 * OVERSIZED };
    let bus = agent.secured.bus_with_limit("agent.mallory", unlimited).await;
    let oversized = agent.command(&"x".repeat(OVERSIZED));
    for _ in 0..HELD {
        let request = Publication::mandatory(tool_invoke(), agent.envelope(&oversized));
        let error = within_timeout("publish", bus.publish(request)).await;
        let error = error.expect_err("the broker refuses it");
        let is_size =
            matches!(error, PublishError::TooLarge { .. } | PublishError::Unsendable { .. });
        assert!(is_size, "{error}");
    }

    handler.send(Signal::CONT);
    agent.open_gate();
    within_timeout("room in the queue", async {
        while agent.call_of_another().await.code != Some(0) {}
    })
    .await;
    for _ in 0..accepted.len() {
        // One tool has a share of the handler, beyond which its calls are rejected.
        if let Err(error) = agent.reply().await {
            assert_eq!((error.code, error.executed), (ToolErrorCode::Overloaded, Executed::No));
            lines.remove(&error.tool_call_id).expect("an accepted call");
        }
    }
    assert!(!lines.is_empty(), "no call ran");
    let grown = memory_kib(handler.pid(), "VmHWM").saturating_sub(before);
    assert!(grown < TOLERATED_KIB, "{grown} KiB");
    assert_eq!(agent.secured.waiting("tool.invoke.dlq").await, 0);
    assert_stops(vec![handler]).await;
    assert_eq!(agent.lines(), lines.into_values().map(|line| (line, 1)).collect());
}

fn assert_rejected(failure: &ToolFailure) {
    let outcome = (failure.code(), failure.executed());
    assert_eq!(outcome, (ToolErrorCode::Overloaded, Executed::No), "{failure}");
}

/// A claim of the sender that the message was delivered before.
#[derive(Debug, Clone, Copy)]
enum Forged {
    /// The number of the sender's attempt.
    Attempt,
    /// The count of the broker's deliveries.
    DeliveryCount,
}

/// Sends calls that claim to be retries to a queue of a tool that is full.
async fn check_forged_retries(forged: Forged) {
    let mut agent = HostileAgent::start().await;
    let config = "[handler.queues.slow]\ntools = ['bash']\nconcurrency = 1\nwaiting = 1\n";
    let handlers = vec![agent.handler("handler-1", config).await];
    let running = agent.command(&format!("echo $$ > pid; {}", gated("running")));
    agent.send(agent.envelope(&running)).await;
    let _group = ProcessGroup::from_file(&agent.secured.fleet, "pid").await;
    // One of them waits.
    let requests: Vec<_> =
        (0..20).map(|number| agent.command(&gated(&format!("forged-{number}")))).collect();
    for request in &requests {
        match forged {
            Forged::Attempt => agent.send(agent.envelope(request).next_attempt()).await,
            Forged::DeliveryCount => agent.send_with_delivery_count(request).await,
        }
    }
    for _ in 1..requests.len() {
        let error = agent.reply().await.expect_err("the queue is full");
        assert_eq!((error.code, error.executed), (ToolErrorCode::Overloaded, Executed::No));
    }
    agent.call_of_another().await.assert_code(0);
    agent.open_gate();
    for _ in 0..2 {
        agent.reply().await.expect("the result of a call that was admitted");
    }
    let lines = agent.lines();
    assert_eq!((lines.len(), lines.get("running")), (2, Some(&1)), "{lines:?}");
    for queue in ["tool.invoke.quarantine", "tool.invoke.dlq"] {
        assert_eq!(agent.secured.waiting(queue).await, 0, "{queue}");
    }
    let log = handlers[0].log();
    assert!(!log.contains("quarantine queue"), "{log}");
    assert_stops(handlers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_attempt_does_not_pass_a_full_tool_queue() {
    check_forged_retries(Forged::Attempt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_delivery_count_does_not_pass_a_full_tool_queue() {
    check_forged_retries(Forged::DeliveryCount).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_requests_do_not_displace_dead_letters() {
    let agent = HostileAgent::start().await;
    let secured = &agent.secured;
    secured.limit_queue("tool.invoke.dlq", LETTERS).await;
    // A request that its handlers return until the broker gives it up.
    let crashing = secured.bus("tool-handler").await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let work = within_timeout("subscribe", crashing.consume(work)).await;
    let mut work = work.expect("subscribed");
    let genuine = agent.command("true");
    agent.send(agent.envelope(&genuine)).await;
    for _ in 0..MAX_DELIVERIES {
        let delivery = next_delivery(&mut work).await;
        within_timeout("a settlement", delivery.settle(Settlement::Retry)).await.expect("settled");
    }
    work.cancel().await;
    drop(work);
    let waiting = || secured.waiting("tool.invoke.dlq");
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    within_timeout("a dead letter", async {
        while waiting().await == 0 {
            ticks.tick().await;
        }
    })
    .await;

    let handlers = vec![agent.handler("handler-1", "").await];
    let unreadable =
        || Envelope::raw(ToolInvokeRequest::TYPE, b"{".to_vec()).with_source("mallory");
    let reply_to = agent.address.tool_result();
    agent.send_all((0..UNREADABLE).map(|_| unreadable().reply_to(reply_to.clone()))).await;
    // The handler has seen all of them when it replies to a later call.
    agent.call_of_another().await.assert_code(0);
    let letters = waiting().await;
    assert!((100..LETTERS).contains(&letters), "{letters} dead letters");
    let mut show = secured.program("rockbot", "operator");
    show.args(["--json", "dlq", "show", "tool.invoke"]);
    let shown = Running::start(show).wait().await;
    shown.assert_code(0);
    let first = &shown.json()["letters"][0];
    assert_eq!(first["correlationId"], *genuine.tool_call_id.as_str());
    assert_stops(handlers).await;
}
