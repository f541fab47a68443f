//! The face, used with the Python client of A2A.

use std::process::Stdio;

use rockbot_gateway::{FaceName, Right};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::fleet::{Fleet, TestGateway};

/// Runs a scenario and returns its outcome.
async fn outcome(gateway: &TestGateway, scenario: &str) -> Value {
    let program = std::env::var_os("ROCKBOT_TEST_A2A_CLIENT")
        .expect("ROCKBOT_TEST_A2A_CLIENT is not set: run the tests with `cargo xtask test`");
    let token = gateway.token(scenario, FaceName::A2a, &[Right::Talk]).await;
    let mut command = Command::new(program);
    command
        .arg(scenario)
        .arg(format!("http://{}/agents/assistant", gateway.address))
        .env("A2A_TOKEN", token)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = within_timeout("the client", command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a2a_sdk_reads_card_and_answers() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let card = outcome(&gateway, "card").await;
    assert_eq!(card, json!({"name": "assistant", "binding": "JSONRPC"}));
    let whole = outcome(&gateway, "whole").await;
    assert_eq!(whole["state"], "TASK_STATE_COMPLETED", "{whole}");
    assert_eq!(whole["text"], "You said hello.");
}

#[tokio::test]
async fn a2a_sdk_repeats_a_message() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let outcomes = outcome(&gateway, "stream").await;
    let outcomes = outcomes.as_array().unwrap();
    assert_eq!(outcomes[0]["text"], "You said hello.", "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
    assert_eq!(fleet.model.request_count(), 1);
}

#[tokio::test]
async fn a2a_sdk_cancels_a_streamed_task() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let cancelled = outcome(&gateway, "cancel").await;
    assert_eq!(cancelled, json!(["TASK_STATE_CANCELED", "TASK_STATE_CANCELED"]));
}

#[tokio::test]
async fn a2a_sdk_understands_errors() {
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway().await;
    let expected = json!([
        "TaskNotFoundError",
        "TaskNotFoundError",
        "TaskNotFoundError",
        "TaskNotCancelableError",
        "UnsupportedOperationError",
        "InvalidParamsError",
    ]);
    assert_eq!(outcome(&gateway, "errors").await, expected);
}
