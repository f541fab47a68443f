//! The face, used with the Python and JavaScript clients of A2A over both bindings.

use std::{path::Path, process::Stdio};

use rockbot_gateway::{FaceName, Right};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::fleet::{Fleet, TestGateway};

/// The bindings of the card.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// Runs a scenario of a program, over a binding, and returns its outcome.
async fn run(gateway: &TestGateway, program: &str, scenario: &str, binding: &str) -> Value {
    let programs = std::env::var_os("ROCKBOT_TEST_A2A_CLIENTS")
        .expect("ROCKBOT_TEST_A2A_CLIENTS is not set: run the tests with `cargo xtask test`");
    let token_name = format!("{scenario}-{}", &binding[..4].to_ascii_lowercase());
    let token = gateway.token(&token_name, FaceName::A2a, &[Right::Talk]).await;
    let mut command = Command::new(Path::new(&programs).join(program));
    command
        .arg(scenario)
        .arg(format!("http://{}/agents/assistant", gateway.address))
        .arg(binding)
        .env("A2A_TOKEN", token)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = within_timeout("the client", command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {scenario} over {binding}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a scenario with the Python client.
async fn outcome(gateway: &TestGateway, scenario: &str, binding: &str) -> Value {
    run(gateway, "python", scenario, binding).await
}

/// Runs a scenario with the JavaScript client.
async fn js_outcome(gateway: &TestGateway, scenario: &str, binding: &str) -> Value {
    let outcome = run(gateway, "node", scenario, binding).await;
    assert_eq!(outcome["transport"], binding);
    outcome["outcome"].clone()
}

#[tokio::test]
async fn a2a_sdk_reads_card_and_answers() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let card = outcome(&gateway, "card", binding).await;
        let transport = if binding == "JSONRPC" { "JsonRpcTransport" } else { "RestTransport" };
        let expected = json!({"name": "assistant", "bindings": BINDINGS, "transport": transport});
        assert_eq!(card, expected);
        let whole = outcome(&gateway, "whole", binding).await;
        assert_eq!(whole["state"], "TASK_STATE_COMPLETED", "{binding}: {whole}");
        assert_eq!(whole["text"], "You said hello.", "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_repeats_a_message() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let outcomes = outcome(&gateway, "stream", binding).await;
        let outcomes = outcomes.as_array().unwrap();
        assert_eq!(outcomes[0]["text"], "You said hello.", "{binding}: {outcomes:?}");
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{binding}: {outcomes:?}");
        assert_eq!(fleet.model.request_count(), 1, "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_cancels_a_streamed_task() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let cancelled = outcome(&gateway, "cancel", binding).await;
        assert_eq!(cancelled, json!(["TASK_STATE_CANCELED", "TASK_STATE_CANCELED"]), "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_lists_tasks_page_by_page() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let listed = outcome(&gateway, "listing", binding).await;
        assert_eq!(listed["pages"], json!([2, 1]), "{binding}: {listed}");
        assert_eq!(listed["total"], 3, "{binding}");
        assert_eq!(listed["newest_first"], true, "{binding}");
        assert_eq!(listed["one_context"], json!(["You said two."]), "{binding}");
        assert_eq!(listed["working"], json!([]), "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_understands_errors() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let expected = json!([
            "TaskNotFoundError",
            "TaskNotFoundError",
            "TaskNotFoundError",
            "TaskNotCancelableError",
            "UnsupportedOperationError",
            "InvalidParamsError",
            "InvalidParamsError",
            "PushNotificationNotSupportedError",
        ]);
        assert_eq!(outcome(&gateway, "errors", binding).await, expected, "{binding}");
    }
}

#[tokio::test]
async fn a2a_js_repeats_a_message() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let outcomes = js_outcome(&gateway, "stream", binding).await;
        let outcomes = outcomes.as_array().unwrap();
        assert_eq!(outcomes[0]["text"], "You said hello.", "{binding}: {outcomes:?}");
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{binding}: {outcomes:?}");
        assert_eq!(fleet.model.request_count(), 1, "{binding}");
    }
}

#[tokio::test]
async fn a2a_js_cancels_a_streamed_task() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let cancelled = js_outcome(&gateway, "cancel", binding).await;
        assert_eq!(cancelled, json!(["TASK_STATE_CANCELED", "TASK_STATE_CANCELED"]), "{binding}");
    }
}

#[tokio::test]
async fn a2a_js_lists_tasks_with_their_answers() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let listed = js_outcome(&gateway, "listing", binding).await;
        let texts = ["You said one.", "You said two.", "You said three."];
        assert_eq!(listed, json!({"sizes": [2, 1], "total": 3, "texts": texts}), "{binding}");
    }
}

#[tokio::test]
async fn a2a_js_understands_errors() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let expected = json!([
            "TaskNotFoundError",
            "TaskNotFoundError",
            "TaskNotFoundError",
            "TaskNotCancelableError",
            "UnsupportedOperationError",
            "RequestMalformedError",
        ]);
        assert_eq!(js_outcome(&gateway, "errors", binding).await, expected, "{binding}");
    }
}
