//! Handlers killed at each point of a call, with a journal shared with the handler that takes over.

use std::fs;

use rockbot_bus::Bus;
use rockbot_store::{Clock, Prefix, Store};
use rockbot_store_sql::SqliteStore;
use rockbot_testkit::{
    FaultProxy,
    fixture::{self, within_timeout},
    proxy::Direction,
};
use rustix::process::Signal;

use crate::{
    fleet::{Fleet, ProcessGroup},
    process::Running,
};

const SHARED: (&str, &str) = ("ROCKBOT_STORE__SHARED", "true");

/// Writes a line to `marker` and its process id to `pid`, and completes when `gate` exists.
const MARKS: &str = r#"{"command": "echo ran >> marker; echo $$ > pid; until [ -e gate ]; do sleep 0.02; done; echo done"}"#;

/// A handler behind a proxy with a running call, whose side effect has happened.
struct Scenario {
    fleet: Fleet,
    proxy: FaultProxy,
    first: Running,
    call: Running,
    _group: ProcessGroup,
}

impl Scenario {
    async fn start() -> Self {
        let fleet = Fleet::new();
        let proxy = FaultProxy::start(&fixture::test_broker_url()).await;
        let settings = [SHARED, ("ROCKBOT_BUS__URL", proxy.url())];
        let first = fleet.handler_with("handler-1", &settings).await;
        // The publish channel to callers is open after the first reply.
        let path = r#"{"path": "."}"#;
        fleet.run(&["tools", "call", "list_files", path]).await.assert_code(0);
        let call = fleet.start(&["--json", "tools", "call", "bash", MARKS]);
        let group = ProcessGroup::from_file(&fleet, "pid").await;
        Self { fleet, proxy, first, call, _group: group }
    }

    /// Kills the handler, starts another one, and returns the caller's result and the marker file.
    async fn kill_handler(self) -> (serde_json::Value, String) {
        let _second = self.fleet.handler_with("handler-2", &[SHARED]).await;
        self.first.send(Signal::KILL);
        let result = self.call.wait().await.json();
        let bus = self.fleet.bus(|_| {}).await;
        wait_until_settled(&self.fleet, &bus).await;
        (result, fs::read_to_string(self.fleet.path("marker")).expect("the side effect"))
    }

    /// Waits until the journal contains the result of the tool.
    async fn wait_until_recorded(&self) {
        let file = self.fleet.path("calls.db");
        let store = SqliteStore::open(&file, Clock::System).await.expect("the journal");
        let calls = Prefix::new(["calls"]).expect("a prefix");
        within_timeout("the result in the journal", async {
            let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
            let has_result = |entry: &rockbot_store::Entry| {
                String::from_utf8_lossy(&entry.value).contains("done")
            };
            loop {
                ticks.tick().await;
                let entries = store.list(&calls, None, 100).await.expect("a page");
                if entries.iter().any(|(_, entry)| has_result(entry)) {
                    return;
                }
            }
        })
        .await;
        store.close().await;
    }
}

/// Waits until no queue contains a request.
async fn wait_until_settled(fleet: &Fleet, bus: &std::sync::Arc<dyn Bus>) {
    within_timeout("empty queues", async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
        loop {
            ticks.tick().await;
            if fleet.waiting_and_dead(bus).await == (0, 0) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn handler_killed_before_tool_start_retries_elsewhere() {
    let fleet = Fleet::new();
    let one_at_a_time = ("ROCKBOT_HANDLER__CONCURRENCY", "1");
    let settings = [SHARED, one_at_a_time, ("ROCKBOT_LOG__LEVEL", "info,rockbot_tool_rpc=debug")];
    let mut first = fleet.handler_with("handler-1", &settings).await;
    let blocking = r#"{"command": "echo $$ > pid; sleep 1000"}"#;
    let blocked = fleet.start(&["--json", "tools", "call", "bash", blocking]);
    let _group = ProcessGroup::from_file(&fleet, "pid").await;
    let marks = r#"{"command": "echo ran >> marker; echo done"}"#;
    let waiting = fleet.start(&["--json", "tools", "call", "bash", marks]);
    first.expect_log("call waits for a permit").await;
    let _second = fleet.handler_with("handler-2", &[SHARED]).await;
    first.send(Signal::KILL);
    let result = waiting.wait().await.json();
    assert_eq!((&result["ok"], &result["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(result["ranOn"], "tool-handler/handler-2");
    assert_eq!(fs::read_to_string(fleet.path("marker")).expect("the side effect"), "ran\n");
    // The call that had started is not retried.
    let result = blocked.wait().await.json();
    assert_eq!(
        (&result["code"], &result["executed"]),
        (&"outcome_unknown".into(), &"unknown".into())
    );
}

#[tokio::test]
async fn handler_killed_during_tool_reports_outcome_unknown() {
    let (result, marker) = Scenario::start().await.kill_handler().await;
    assert_eq!(
        (&result["code"], &result["executed"]),
        (&"outcome_unknown".into(), &"unknown".into())
    );
    assert_eq!(marker, "ran\n");
}

#[tokio::test]
async fn handler_killed_before_reply_sends_recorded_result() {
    let scenario = Scenario::start().await;
    scenario.proxy.stall_direction(Direction::ToBroker);
    scenario.fleet.write("gate", "");
    scenario.wait_until_recorded().await;
    let (result, marker) = scenario.kill_handler().await;
    assert_eq!((&result["ok"], &result["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(result["content"], "done\n");
    assert_eq!(result["ranOn"], "tool-handler/handler-2", "the handler that replied");
    assert_eq!(marker, "ran\n");
}

#[tokio::test]
async fn handler_killed_before_ack_runs_nothing_twice() {
    let scenario = Scenario::start().await;
    // The reply is sent but its confirm is lost, so the request is not acked.
    scenario.proxy.stall_direction(Direction::ToClient);
    scenario.fleet.write("gate", "");
    scenario.wait_until_recorded().await;
    let (result, marker) = scenario.kill_handler().await;
    assert_eq!((&result["ok"], &result["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(
        (&result["content"], &result["ranOn"]),
        (&"done\n".into(), &"tool-handler/handler-1".into())
    );
    assert_eq!(marker, "ran\n");
}
