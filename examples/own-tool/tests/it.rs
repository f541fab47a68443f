//! The example as a process on a broker, called by an agent.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Requester};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{AgentName, SessionId};
use rockbot_testkit::fixture::{
    TEST_TIMEOUT, fresh_namespace, reply_address, test_broker_url, within_timeout,
};
use rockbot_tool_rpc::CatalogDirectory;
use rockbot_tools::{ToolCall, ToolContext, ToolExecutor, ToolRegistry};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// Starts the example in a namespace of its own.
fn start(namespace: &str, folder: &std::path::Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_own-tool"))
        .env_clear()
        .env("ROCKBOT_BUS__URL", test_broker_url())
        .env("ROCKBOT_BUS__NAMESPACE", namespace)
        .env("ROCKBOT_FILES__ROOT", folder)
        .env("ROCKBOT_STORE__URL", format!("sqlite:{}", folder.join("calls.db").display()))
        .current_dir(folder)
        .kill_on_drop(true)
        .spawn()
        .expect("started")
}

async fn connect(namespace: &str) -> Arc<dyn Bus> {
    let mut config = RabbitConfig::new(test_broker_url(), "a test of the example");
    namespace.clone_into(&mut config.namespace);
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(TEST_TIMEOUT).await.expect("connected");
    Arc::new(bus)
}

#[tokio::test(flavor = "multi_thread")]
async fn own_tool_answers_calls_over_the_broker() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = fresh_namespace();
    let mut process = start(&namespace, folder.path());
    let bus = connect(&namespace).await;
    let registry = Arc::new(ToolRegistry::new());
    let requester = Arc::new(Requester::new(bus.clone(), reply_address("agent", "one")));
    let directory = CatalogDirectory::start(requester, registry.clone()).await.expect("started");
    assert!(directory.wait_for_any(TEST_TIMEOUT).await, "the handler announces its tools");

    let executor = ToolExecutor::new(registry.clone());
    let call = async |arguments: &str| {
        let session = SessionId::new("s").unwrap();
        let context = ToolContext::new("word_count", session, AgentName::new("agent").unwrap());
        executor.execute(ToolCall { context, arguments: arguments.into() }).await
    };
    let result = call(r#"{"text": "to be or not to be"}"#).await.expect("a result");
    assert_eq!(result.to_text(), "6 words");
    assert_eq!(result.details.expect("details")["words"], 6);
    let empty = call(r#"{"text": " "}"#).await.unwrap_err();
    assert!(empty.to_string().contains("the text has no words"), "{empty}");
    let names: Vec<_> = registry.list().into_iter().map(|tool| tool.name).collect();
    assert!(names.contains(&"read_file".to_owned()), "{names:?}");

    let id = process.id().expect("running");
    kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::TERM).unwrap();
    let status = within_timeout("the exit", process.wait()).await.expect("a status");
    assert_eq!(status.code(), Some(0), "drained");
    let gone = tokio::time::timeout(Duration::from_secs(5), bus.close()).await;
    assert!(gone.is_ok(), "closed");
}
