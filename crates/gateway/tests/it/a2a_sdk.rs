//! The face, used with the Python and JavaScript clients of A2A over both bindings.

use std::{path::Path, process::Stdio};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rockbot_gateway::{A2aParts, A2aSection, FaceName, Right};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    a2a_push::LOCAL,
    fleet::{Fleet, TestGateway},
};

/// The bindings of the card.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// An official client of the protocol.
#[derive(Debug, Clone, Copy)]
enum Sdk {
    Python,
    JavaScript,
}

impl Sdk {
    /// Runs a scenario over a binding, and returns its outcome.
    async fn run(self, gateway: &TestGateway, scenario: &str, binding: &str) -> Value {
        self.run_with(gateway, scenario, binding, &[]).await
    }

    /// Runs a scenario with further variables.
    async fn run_with(
        self,
        gateway: &TestGateway,
        scenario: &str,
        binding: &str,
        variables: &[(&str, &Path)],
    ) -> Value {
        let programs = std::env::var_os("ROCKBOT_TEST_A2A_CLIENTS")
            .expect("ROCKBOT_TEST_A2A_CLIENTS is not set: run the tests with `cargo xtask test`");
        let program = match self {
            Self::Python => "python",
            Self::JavaScript => "node",
        };
        let token_name = format!("{scenario}-{}", &binding[..4].to_ascii_lowercase());
        let token = gateway.token(&token_name, FaceName::A2a, &[Right::Talk]).await;
        let mut command = Command::new(Path::new(&programs).join(program));
        command
            .arg(scenario)
            .arg(format!("http://{}/agents/assistant", gateway.address))
            .arg(binding)
            .env("A2A_TOKEN", token)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let output = within_timeout("the client", command.output()).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {scenario} over {binding}: {errors}");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        match self {
            Self::Python => outcome,
            Self::JavaScript => {
                assert_eq!(outcome["transport"], binding);
                outcome["outcome"].clone()
            }
        }
    }

    /// Checks the outcome of a scenario over each binding.
    async fn check(self, scenario: &str, expected: &Value) {
        for binding in BINDINGS {
            let fleet = Fleet::start().await;
            let gateway = fleet.gateway().await;
            let outcome = self.run(&gateway, scenario, binding).await;
            assert_eq!(outcome, *expected, "{self:?}: {scenario} over {binding}");
        }
    }

    /// Checks that a repeated message has one turn and the same outcome over each binding.
    async fn check_repetition(self) {
        for binding in BINDINGS {
            let fleet = Fleet::start().await;
            let gateway = fleet.gateway().await;
            let outcomes = self.run(&gateway, "stream", binding).await;
            let outcomes = outcomes.as_array().unwrap();
            assert_eq!(outcomes[0]["text"], "You said hello.", "{binding}: {outcomes:?}");
            let first = &outcomes[0];
            assert!(outcomes.iter().all(|outcome| outcome == first), "{binding}: {outcomes:?}");
            assert_eq!(fleet.model.request_count(), 1, "{binding}");
        }
    }

    /// Checks that a cancelled task ends in its stream and at the agent over each binding.
    async fn check_cancellation(self) {
        let state = "TASK_STATE_CANCELED";
        self.check("cancel", &json!([state, state])).await;
    }
}

#[tokio::test]
async fn a2a_sdk_reads_card_and_answers() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let card = Sdk::Python.run(&gateway, "card", binding).await;
        let transport = if binding == "JSONRPC" { "JsonRpcTransport" } else { "RestTransport" };
        let expected = json!({"name": "assistant", "bindings": BINDINGS, "transport": transport});
        assert_eq!(card, expected);
        let whole = Sdk::Python.run(&gateway, "whole", binding).await;
        assert_eq!(whole["state"], "TASK_STATE_COMPLETED", "{binding}: {whole}");
        assert_eq!(whole["text"], "You said hello.", "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_repeats_a_message() {
    Sdk::Python.check_repetition().await;
}

#[tokio::test]
async fn a2a_sdk_cancels_a_streamed_task() {
    Sdk::Python.check_cancellation().await;
}

#[tokio::test]
async fn a2a_sdk_lists_tasks_page_by_page() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway().await;
        let listed = Sdk::Python.run(&gateway, "listing", binding).await;
        assert_eq!(listed["pages"], json!([2, 1]), "{binding}: {listed}");
        assert_eq!(listed["total"], 3, "{binding}");
        assert_eq!(listed["newest_first"], true, "{binding}");
        assert_eq!(listed["one_context"], json!(["You said two."]), "{binding}");
        assert_eq!(listed["working"], json!([]), "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_understands_errors() {
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
    Sdk::Python.check("errors", &expected).await;
}

#[tokio::test]
async fn a2a_sdk_receives_push_notifications_in_order() {
    for binding in BINDINGS {
        let fleet = Fleet::start().await;
        let gateway = fleet.gateway_with(LOCAL).await;
        let outcome = Sdk::Python.run(&gateway, "push", binding).await;
        let expected = json!({
            "texts": ["You said hello.", "You said hello again."],
            "states": ["TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED"],
            "begins_with_task": "task",
            "tokens": ["token-created", "token-message"],
            "authorization": ["Bearer credentials"],
            "same": true,
            "left": 0,
        });
        assert_eq!(outcome, expected, "{binding}");
    }
}

#[tokio::test]
async fn a2a_sdk_verifies_the_signature_of_a_card() {
    let files = tempfile::tempdir().unwrap();
    let (key_file, public_file) = (files.path().join("card.key"), files.path().join("card.pub"));
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    std::fs::write(&public_file, key.public_key_pem()).unwrap();
    let fleet = Fleet::start().await;
    let gateway = fleet.gateway_with(&format!("a2a.signing_key_file = {key_file:?}")).await;
    let section = A2aSection { signing_key_file: Some(key_file), ..A2aSection::default() };
    let parts = A2aParts::load(&section).unwrap();
    for binding in BINDINGS {
        let variables = [("A2A_CARD_KEY", public_file.as_path())];
        let outcome = Sdk::Python.run_with(&gateway, "signed_card", binding, &variables).await;
        let key_ids = [parts.signing_key_id()];
        let expected = json!({"signatures": 1, "changed": "invalid", "key_ids": key_ids});
        assert_eq!(outcome, expected, "{binding}");
    }
}

#[tokio::test]
async fn a2a_js_repeats_a_message() {
    Sdk::JavaScript.check_repetition().await;
}

#[tokio::test]
async fn a2a_js_cancels_a_streamed_task() {
    Sdk::JavaScript.check_cancellation().await;
}

#[tokio::test]
async fn a2a_js_lists_tasks_with_their_answers() {
    let texts = ["You said one.", "You said two.", "You said three."];
    Sdk::JavaScript.check("listing", &json!({"sizes": [2, 1], "total": 3, "texts": texts})).await;
}

#[tokio::test]
async fn a2a_js_understands_errors() {
    let expected = json!([
        "TaskNotFoundError",
        "TaskNotFoundError",
        "TaskNotFoundError",
        "TaskNotCancelableError",
        "UnsupportedOperationError",
        "RequestMalformedError",
    ]);
    Sdk::JavaScript.check("errors", &expected).await;
}
