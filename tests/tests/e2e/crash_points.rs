//! Handlers killed at each point of a call, with a journal shared by the handler that takes over.

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
    fleet::{Fleet, Group},
    process::Running,
};

const SHARED: (&str, &str) = ("ROCKBOT_STORE__SHARED", "true");

/// Leaves its mark, says so, and ends when told.
const MARKS: &str = r#"{"command": "echo ran >> mark; echo $$ > pid; until [ -e gate ]; do sleep 0.02; done; echo done"}"#;

/// A handler behind a proxy, with a call under way whose side effect is done.
struct Stage {
    fleet: Fleet,
    proxy: FaultProxy,
    first: Running,
    call: Running,
    _group: Group,
}

impl Stage {
    async fn set() -> Self {
        let fleet = Fleet::new();
        let proxy = FaultProxy::start(&fixture::test_broker_url()).await;
        let settings = [SHARED, ("ROCKBOT_BUS__URL", proxy.url())];
        let first = fleet.handler_with("handler-1", &settings).await;
        // The publish channel to callers is open after the first reply.
        let path = r#"{"path": "."}"#;
        fleet.run(&["tools", "call", "list_files", path]).await.assert_code(0);
        let call = fleet.start(&["--json", "tools", "call", "bash", MARKS]);
        let group = Group::from_file(&fleet, "pid").await;
        Self { fleet, proxy, first, call, _group: group }
    }

    /// Kills the handler, lets another take over, and returns the caller's result.
    async fn ended(self) -> (serde_json::Value, String) {
        let _second = self.fleet.handler_with("handler-2", &[SHARED]).await;
        self.first.send(Signal::KILL);
        let told = self.call.ended().await.json();
        let bus = self.fleet.bus(|_| {}).await;
        settled(&self.fleet, &bus).await;
        (told, fs::read_to_string(self.fleet.path("mark")).expect("the side effect"))
    }

    /// Waits until the journal holds what the tool said.
    async fn written_down(&self) {
        let file = self.fleet.path("calls.db");
        let store = SqliteStore::open(&file, Clock::System).await.expect("the journal");
        let calls = Prefix::new(["calls"]).expect("a prefix");
        within_timeout("the end of the call in the journal", async {
            let mut look = tokio::time::interval(std::time::Duration::from_millis(20));
            let ended = |entry: &rockbot_store::Entry| {
                String::from_utf8_lossy(&entry.value).contains("done")
            };
            loop {
                look.tick().await;
                let entries = store.list(&calls, None, 100).await.expect("a page");
                if entries.iter().any(|(_, entry)| ended(entry)) {
                    return;
                }
            }
        })
        .await;
        store.close().await;
    }
}

/// Waits until no request is left anywhere.
async fn settled(fleet: &Fleet, bus: &std::sync::Arc<dyn Bus>) {
    within_timeout("an empty queue", async {
        let mut look = tokio::time::interval(std::time::Duration::from_millis(20));
        loop {
            look.tick().await;
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
    let _group = Group::from_file(&fleet, "pid").await;
    let marks = r#"{"command": "echo ran >> mark; echo done"}"#;
    let waiting = fleet.start(&["--json", "tools", "call", "bash", marks]);
    first.says("call waits for a permit").await;
    let _second = fleet.handler_with("handler-2", &[SHARED]).await;
    first.send(Signal::KILL);
    let told = waiting.ended().await.json();
    assert_eq!((&told["ok"], &told["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(told["ranOn"], "tool-handler/handler-2");
    assert_eq!(fs::read_to_string(fleet.path("mark")).expect("the side effect"), "ran\n");
    // And the one that ran is not run again.
    let told = blocked.ended().await.json();
    assert_eq!((&told["code"], &told["executed"]), (&"outcome_unknown".into(), &"unknown".into()));
}

#[tokio::test]
async fn handler_killed_during_tool_reports_outcome_unknown() {
    let (told, mark) = Stage::set().await.ended().await;
    assert_eq!((&told["code"], &told["executed"]), (&"outcome_unknown".into(), &"unknown".into()));
    assert_eq!(mark, "ran\n");
}

#[tokio::test]
async fn handler_killed_before_reply_sends_recorded_result() {
    let stage = Stage::set().await;
    stage.proxy.stall_direction(Direction::ToBroker);
    stage.fleet.write("gate", "");
    stage.written_down().await;
    let (told, mark) = stage.ended().await;
    assert_eq!((&told["ok"], &told["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(told["content"], "done\n");
    assert_eq!(told["ranOn"], "tool-handler/handler-2", "who answered");
    assert_eq!(mark, "ran\n");
}

#[tokio::test]
async fn handler_killed_before_ack_runs_nothing_twice() {
    let stage = Stage::set().await;
    // The answer goes out; its confirm never comes back, so the request is not acked.
    stage.proxy.stall_direction(Direction::ToClient);
    stage.fleet.write("gate", "");
    stage.written_down().await;
    let (told, mark) = stage.ended().await;
    assert_eq!((&told["ok"], &told["executed"]), (&true.into(), &"yes".into()));
    assert_eq!(
        (&told["content"], &told["ranOn"]),
        (&"done\n".into(), &"tool-handler/handler-1".into())
    );
    assert_eq!(mark, "ran\n");
}
