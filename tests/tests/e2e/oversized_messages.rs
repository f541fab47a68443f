//! A request beyond `max_message_size` of the broker.

use std::{sync::Arc, time::Duration};

use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{Executed, ToolErrorCode, json::Limits, topology::tool_invoke};
use rockbot_testkit::{broker::PrivateBroker, fixture::TEST_TIMEOUT};
use rockbot_tool_rpc::RemoteTool;
use rockbot_tools::Tool;
use serde_json::json;

use crate::{
    announced_tool::tool,
    caller::Caller,
    fleet::{Fleet, assert_contains},
    process::memory_kib,
};

/// Size of the arguments.
const BYTES: usize = 60 * 1024 * 1024;
/// Growth of a handler's memory that does not depend on the size of the request.
pub(crate) const TOLERATED_KIB: u64 = 16 * 1024;
/// The warning of `rockbot doctor`.
const WARNING: &str = "warning: the broker accepts messages over 4 MiB";
/// Time limit of a call, one of which sends 60 MiB to the broker.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The sender has neither the limit of the shipped programs for arguments nor that for messages.
#[tokio::test(flavor = "multi_thread")]
async fn broker_refuses_oversized_request_before_a_handler_has_it() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "");
    let broker = tokio::task::spawn_blocking(PrivateBroker::start).await.expect("no panic");
    let broker = broker.expect("a broker");
    let url = broker.amqp_url();
    let handler = fleet.handler_with("handler-1", &[("ROCKBOT_BUS__URL", url.as_str())]).await;
    let config = RabbitConfig {
        limits: Limits { bytes: 2 * BYTES },
        ..RabbitConfig::new(&url, "an e2e test").with_namespace(&fleet.namespace)
    };
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(TEST_TIMEOUT).await.expect("connected");
    let caller = Caller::new(Arc::new(bus), TIMEOUT);
    caller.call("read_file", json!({"path": "notes.md"})).await.expect("a result");

    let before = memory_kib(handler.pid(), "VmHWM");
    let arguments = json!({"path": "large.txt", "content": "x".repeat(BYTES)});
    let tool = tool("write_file", json!({"type": "object"}));
    let tool = RemoteTool::new(tool, caller.requester.clone(), tool_invoke());
    let context = caller.context("write_file", TIMEOUT);
    let failure = tool.call(arguments, &context).await.expect_err("the broker refuses it");
    let outcome = (failure.code(), failure.executed());
    assert_eq!(outcome, (ToolErrorCode::InvalidArguments, Executed::No), "{failure}");
    assert_contains(&failure.to_string(), &["over the limit of 4194304"]);
    caller.call("read_file", json!({"path": "notes.md"})).await.expect("the bus recovers");
    // The kernel's counters are approximate: a later peak can be a little lower.
    let grown = memory_kib(handler.pid(), "VmHWM").saturating_sub(before);
    assert!(grown < TOLERATED_KIB, "{grown} KiB");
    assert!(!fleet.path("large.txt").exists());
    let doctor = fleet.run(&["--bus", &url, "doctor"]).await;
    doctor.assert_code(0);
    assert!(!doctor.stdout.contains(WARNING), "{}", doctor.stdout);
    assert!(!doctor.stdout.contains("message limit"), "{}", doctor.stdout);
    assert!(!handler.log().contains("broker connection lost"), "{}", handler.log());
    tokio::task::spawn_blocking(|| broker.stop()).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_warns_of_a_broker_without_the_limit() {
    let fleet = Fleet::new();
    let limit = "max_message_size = 16777216\n";
    let broker = tokio::task::spawn_blocking(|| PrivateBroker::start_with(limit, &[]));
    let broker = broker.await.expect("no panic").expect("a broker");
    let url = broker.amqp_url();
    let _handler = fleet.handler_with("handler-1", &[("ROCKBOT_BUS__URL", url.as_str())]).await;
    let doctor = fleet.run(&["--bus", &url, "doctor"]).await;
    doctor.assert_code(0);
    assert_contains(&doctor.stdout, &[WARNING, "max_message_size = 4194304"]);
    assert_contains(&doctor.stdout, &["message limit  over 4 MiB"]);
    let doctor = fleet.run(&["--bus", &url, "--json", "doctor"]).await;
    assert_eq!(doctor.json()["messageLimit"], json!({"oversized": "accepted"}));
    tokio::task::spawn_blocking(|| broker.stop()).await.expect("no panic");
}
