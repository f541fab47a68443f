//! Processes whose clocks differ: a caller behind its handler, and a handler ahead of `rockbot doctor`.

use std::{fs, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Consumer, Publication, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, Message, SessionId, ToolCallId, ToolInvokeRequest, ToolInvokeResponse,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_testkit::fixture::{next_delivery, reply_address, within_timeout};
use serde_json::json;

use crate::{
    announced_tool::{announce_on_request, tool},
    caller::Caller,
    clocks::Clocks,
    fleet::{Fleet, assert_contains},
};

/// Difference between the clocks.
const BEHIND_MS: u64 = 90_000;
/// Time limit of a call, which is less.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the calls. A handler that has waited for a second knows that a call was sent just now.
const INTERVAL: Duration = Duration::from_millis(1500);
/// Difference of a clock of a handler, in seconds.
const OFFSET: i64 = 300;
/// The least difference that a handler measures, in seconds. On a busy machine, the request of the measurement took
/// up to some seconds.
const LEAST_MEASURED: u64 = 290;
/// Log line of a handler.
const WARNING: &str = "clock differs from that of a sender";

/// A caller whose clock is behind.
struct SlowCaller {
    bus: Arc<dyn Bus>,
    address: ReplyAddress,
    replies: Consumer,
}

impl SlowCaller {
    /// Calls a tool, and returns whether it ran.
    async fn call(&mut self) -> bool {
        let request = ToolInvokeRequest {
            tool_call_id: ToolCallId::generate(),
            tool_name: "list_files".to_owned(),
            arguments: "{}".to_owned(),
            session_id: SessionId::generate(),
        };
        let mut envelope = Envelope::from_payload(&request)
            .with_correlation_id(request.tool_call_id.as_str())
            .with_source("stranger")
            .reply_to(self.address.tool_result())
            .within(TIMEOUT);
        envelope.budget.as_mut().expect("a budget").deadline_unix_ms -= BEHIND_MS;
        let publication = Publication::mandatory(tool_invoke(), envelope);
        within_timeout("publish", self.bus.publish(publication)).await.expect("confirmed");
        let reply = next_delivery(&mut self.replies).await;
        let ran = reply.envelope().message_type() == ToolInvokeResponse::TYPE;
        within_timeout("an ack", reply.settle(Settlement::Ack)).await.expect("acked");
        ran
    }
}

/// Returns the number of runs, each of which writes a line.
fn ran(fleet: &Fleet) -> usize {
    fs::read_to_string(fleet.path("lines")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn handler_ahead_of_caller_warns_once_and_runs_calls() {
    let fleet = Fleet::new();
    let handler = fleet.handler("handler-1").await;
    let bus = fleet.bus(|_| {}).await;
    let address = reply_address("stranger", "1");
    let replies = bus.consume(Subscription::new(address.queue(), 16)).await.expect("subscribed");
    let mut caller = SlowCaller { bus, address, replies };
    let mut ticks = tokio::time::interval(INTERVAL);
    // Directly after its start, a handler takes a call for one that waited in its queue.
    while !handler.log().contains(WARNING) {
        ticks.tick().await;
        caller.call().await;
    }
    for _ in 0..4 {
        ticks.tick().await;
        assert!(caller.call().await, "a call expired: {}", handler.log());
    }
    let warnings = handler.log().matches(WARNING).count();
    assert_eq!(warnings, 1, "{}", handler.log());
    // On a busy machine, the request of the measurement took up to some seconds.
    assert_contains(&handler.log(), &["ahead_seconds=9"]);
}

/// Returns the number after the field's name in the warning of a handler.
fn measured_seconds(log: &str, field: &str) -> u64 {
    let (_, rest) = log.split_once(field).unwrap_or_else(|| panic!("no {field} in:\n{log}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|error| panic!("{field}: {error}:\n{log}"))
}

/// The clocks of the handlers are wrong, not the deadlines of the requests.
#[tokio::test]
async fn handlers_with_clocks_five_minutes_off_run_calls() {
    let clocks = Clocks::start().await;
    for (instance, offset) in [("ahead", OFFSET), ("behind", -OFFSET)] {
        let fleet = Fleet::new();
        clocks.set(instance, offset);
        let settings = clocks.settings(instance);
        let settings =
            settings.each_ref().map(|(key, value)| (*key, value.to_str().expect("UTF-8")));
        let handler = fleet.handler_with(instance, &settings).await;
        let caller = Caller::new(fleet.bus(|_| {}).await, TIMEOUT);
        let call = || caller.call("bash", json!({"command": "echo ran >> lines"}));
        let mut ticks = tokio::time::interval(INTERVAL);
        let mut late = 0;
        // Directly after its start, a handler takes a call for one that waited in its queue.
        within_timeout("the warning", async {
            while !handler.log().contains(WARNING) {
                ticks.tick().await;
                late += usize::from(call().await.is_err());
            }
        })
        .await;
        assert!(offset > 0 || late == 0, "a clock that is behind lets no call expire");
        let earlier = ran(&fleet);
        for _ in 0..4 {
            ticks.tick().await;
            call().await.expect("a result");
        }
        assert_eq!(ran(&fleet), earlier + 4);
        let measured = measured_seconds(&handler.log(), &format!("{instance}_seconds="));
        assert!(measured >= LEAST_MEASURED, "{measured} s: {}", handler.log());
    }
}

#[tokio::test]
async fn doctor_shows_handler_with_other_clock() {
    let fleet = Fleet::new();
    let _handler = fleet.handler("handler-1").await;
    let bus = fleet.bus(|_| {}).await;
    let registration = tool("now", json!({"type": "object"}));
    let announcer = announce_on_request(bus, registration, BEHIND_MS / 1000).await;
    let doctor = fleet.run(&["--json", "doctor"]).await;
    announcer.abort();
    let findings = doctor.json()["findings"].clone();
    let findings = findings.as_array().expect("findings");
    let clocks: Vec<_> = findings
        .iter()
        .filter(|finding| finding["message"].as_str().is_some_and(|text| text.contains("clock")))
        .collect();
    let [finding] = clocks.as_slice() else { panic!("{findings:?}") };
    let message = finding["message"].as_str().unwrap_or_default();
    // Seconds are cut, and the announcement takes a moment.
    let is_right = (80..=90).any(|seconds| {
        message.starts_with("the clock of hostile/")
            && message
                .contains(&format!(" is {seconds} s ahead of this one; synchronize all clocks"))
    });
    assert!(is_right, "{message}");
    assert_eq!(finding["severity"], "warning");
}
