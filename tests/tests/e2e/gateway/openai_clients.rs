//! OpenAI's clients for Python and Node.js, and the AI SDK.

use rustix::process::Signal;
use serde_json::json;

use super::harness::GatewayFleet;
use crate::fleet::{ProcessGroup, assert_contains};

#[tokio::test]
async fn clients_read_completions_and_streams() {
    let fleet = GatewayFleet::start().await;
    let (gateway, address) = fleet.gateway("gateway-0").await;
    for client in ["python", "node", "ai-sdk"] {
        for scenario in ["whole", "stream"] {
            let outcome = fleet.outcome(client, &[scenario], &address).await;
            let text = |field: &str| outcome[field].as_str().unwrap_or_default().to_owned();
            assert_contains(&text("content"), &["It says: a result"]);
            assert_contains(&text("reasoning"), &["[bash {", "[bash finished after "]);
            assert!(outcome["totalTokens"].is_u64(), "{client} {scenario}: {outcome}");
            if let Some(finish) = outcome["finish"].as_str() {
                assert_eq!(finish, "stop", "{client} {scenario}");
            }
        }
    }
    gateway.send(Signal::TERM);
    gateway.wait().await.assert_code(0);
}

#[tokio::test]
async fn clients_list_models_and_continue_conversations() {
    let fleet = GatewayFleet::start().await;
    let (_gateway, address) = fleet.gateway("gateway-0").await;
    for client in ["python", "node"] {
        let models = fleet.outcome(client, &["models"], &address).await;
        assert_eq!(models, json!(["assistant"]), "{client}");
        let answer = fleet.outcome(client, &["conversation"], &address).await;
        assert_eq!(answer, json!("The second answer."), "{client}");
    }
}

#[tokio::test]
async fn clients_understand_errors() {
    let fleet = GatewayFleet::start().await;
    let (_gateway, address) = fleet.gateway("gateway-0").await;
    for (client, failed) in [("python", "InternalServerError"), ("node", "InternalServerError")] {
        let outcomes = fleet.outcome(client, &["errors"], &address).await;
        let unknown = json!(["NotFoundError", "model_not_found"]);
        let expected =
            json!([unknown, unknown, [failed, "model_failed"], ["APIError", "model_failed"],]);
        assert_eq!(outcomes, expected, "{client}");
    }
}

#[tokio::test]
async fn clients_read_and_continue_responses() {
    let fleet = GatewayFleet::start().await;
    let (_gateway, address) = fleet.gateway("gateway-0").await;
    for client in ["python", "node"] {
        for scenario in ["response_whole", "response_stream"] {
            let outcome = fleet.outcome(client, &[scenario], &address).await;
            let text = |field: &str| outcome[field].as_str().unwrap_or_default().to_owned();
            assert_contains(&text("content"), &["It says: a result"]);
            assert_contains(&text("reasoning"), &["[bash {", "[bash finished after "]);
            assert!(outcome["totalTokens"].is_u64(), "{client} {scenario}: {outcome}");
            assert_eq!(outcome["finish"], "completed", "{client} {scenario}");
        }
        let answer = fleet.outcome(client, &["response_continued"], &address).await;
        assert_eq!(answer, json!("The second answer."), "{client}");
    }
}

#[tokio::test]
async fn clients_understand_errors_of_responses() {
    let fleet = GatewayFleet::start().await;
    let (_gateway, address) = fleet.gateway("gateway-0").await;
    for client in ["python", "node"] {
        let outcomes = fleet.outcome(client, &["response_errors"], &address).await;
        let (unknown, tools) = (
            json!(["NotFoundError", "model_not_found"]),
            json!(["BadRequestError", "invalid_value"]),
        );
        let whole = json!(["InternalServerError", "model_failed"]);
        let streamed = json!(["response.failed", "model_failed"]);
        assert_eq!(outcomes, json!([unknown, unknown, tools, tools, whole, streamed]), "{client}");
    }
}

#[tokio::test]
async fn client_that_hangs_up_cancels_the_tool() {
    let fleet = GatewayFleet::start().await;
    let (_gateway, address) = fleet.gateway("gateway-0").await;
    for (client, scenario) in [
        ("python", "hang_up"),
        ("node", "hang_up"),
        ("python", "response_hang_up"),
        ("node", "response_hang_up"),
    ] {
        let hung_up = fleet.client(client, &[scenario], &address);
        let command = ProcessGroup::from_file(&fleet.fleet, "pid.txt").await;
        let exit = hung_up.wait().await;
        exit.assert_code(0);
        assert_eq!(exit.json(), json!("hung up"));
        command.wait_for_exit().await;
        std::fs::remove_file(fleet.fleet.path("pid.txt")).expect("removed");
    }
}
