//! Errors, timeouts, retries and oversized responses.

use std::time::Duration;

use rockbot_llm::{ChatError, OpenAiSettings, TimeoutPhase};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    answer, events, prompt,
    server::{CannedResponse, Server, model, sse},
};

fn ok() -> CannedResponse {
    CannedResponse::events(&[
        json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}),
    ])
}

fn partial_answer() -> String {
    sse(&[json!({"choices": [{"delta": {"content": "half"}}]})])
}

/// Returns the error of one request, and the number of HTTP requests.
async fn request_error(responses: impl IntoIterator<Item = CannedResponse>) -> (ChatError, usize) {
    let server = Server::start(responses).await;
    let error = answer(&server.model(), prompt("Hello.")).await.unwrap_err();
    (error, server.requests().len())
}

/// Returns an error that may be retried immediately.
fn retry_now(status: u16) -> CannedResponse {
    CannedResponse::status(status, r#"{"error":{"message":"later"}}"#)
        .with_header("retry-after", "0")
}

#[tokio::test]
async fn transient_failure_is_retried_with_same_body() {
    for status in [429, 500, 502, 503, 504] {
        let server = Server::start([retry_now(status), retry_now(status), ok()]).await;
        let answer = answer(&server.model(), prompt("Hello.")).await.unwrap();
        assert_eq!(answer.text, "ok");
        let requests = server.requests();
        assert_eq!(requests.len(), 3, "{status}");
        assert_eq!(requests[0].body, requests[2].body);
    }
}

#[tokio::test]
async fn attempts_are_bounded() {
    let (error, requests) =
        request_error([retry_now(429), retry_now(429), retry_now(429), ok()]).await;
    let ChatError::RateLimited { retry_after, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*retry_after, requests), (Some(Duration::ZERO), 3));

    let (error, requests) =
        request_error([retry_now(503), retry_now(503), retry_now(503), ok()]).await;
    assert!(matches!(error, ChatError::Rejected { status: Some(503), .. }));
    assert_eq!(requests, 3);
}

#[tokio::test]
async fn long_retry_after_is_not_retried() {
    let response = CannedResponse::status(429, "slow down").with_header("retry-after", "3600");
    let (error, requests) = request_error([response, ok()]).await;
    let ChatError::RateLimited { retry_after, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*retry_after, requests), (Some(Duration::from_secs(3600)), 1));
}

#[tokio::test]
async fn failure_with_status_200_is_retried() {
    let failure = json!({"error": {"message": "provider down", "code": 502}});
    let in_stream = CannedResponse::stream(&sse(std::slice::from_ref(&failure)));
    let in_body = CannedResponse::status(200, &failure.to_string())
        .with_header("content-type", "application/json");
    let server = Server::start([in_stream, in_body, ok()]).await;
    let model = server.model();
    assert_eq!(answer(&model, prompt("Hello.")).await.unwrap().text, "ok");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn rejected_key_error_names_variable_without_key() {
    let body = r#"{"error":{"message":"Incorrect API key: sk-test","code":"invalid_api_key"}}"#;
    let (error, requests) = request_error([CannedResponse::status(401, body), ok()]).await;
    assert!(matches!(error, ChatError::Unauthorized { status: 401, .. }));
    assert!(error.to_string().contains("OPENAI_API_KEY"));
    assert!(!format!("{error} {error:?}").contains("sk-test"));
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn permanent_error_is_not_retried() {
    let overflow = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let (error, requests) = request_error([CannedResponse::status(400, overflow), ok()]).await;
    assert!(matches!(error, ChatError::ContextOverflow { .. }));
    assert_eq!(requests, 1);

    let (error, requests) =
        request_error([CannedResponse::status(404, "no such model"), ok()]).await;
    let ChatError::ModelNotFound { model, .. } = &error else { panic!("{error:?}") };
    assert_eq!((model.as_str(), requests), ("test-model", 1));

    let (error, requests) = request_error([CannedResponse::status(400, "bad schema"), ok()]).await;
    assert!(matches!(error, ChatError::Rejected { status: Some(400), .. }));
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = Server::start([ok()]).await;
    let response = CannedResponse::status(307, "").with_header("location", &elsewhere.base_url);
    let (error, requests) = request_error([response]).await;
    assert!(matches!(error, ChatError::Rejected { status: Some(307), .. }));
    assert!(error.to_string().contains("base_url"));
    assert_eq!((requests, elsewhere.requests().len()), (1, 0));
}

#[tokio::test]
async fn web_page_indicates_wrong_base_url() {
    let page = CannedResponse::status(200, "<html>").with_header("content-type", "text/html");
    let (error, _) = request_error([page]).await;
    assert!(matches!(error, ChatError::Malformed { .. }));
    assert!(error.to_string().contains("base_url"));
}

#[tokio::test]
async fn partial_answer_is_interrupted_without_retry() {
    for response in [
        CannedResponse::stream(&partial_answer()),
        CannedResponse::stream(&partial_answer()).with_abort(),
    ] {
        let server = Server::start([response, ok()]).await;
        let (events, error) = events(&server.model(), prompt("Hello.")).await;
        assert_eq!(events.len(), 1);
        assert!(matches!(error, Some(ChatError::Interrupted { .. })), "{error:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn answer_without_events_is_retried() {
    let server =
        Server::start([CannedResponse::stream(": waking up\n\n").with_abort(), ok()]).await;
    assert_eq!(answer(&server.model(), prompt("Hello.")).await.unwrap().text, "ok");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn failure_after_first_event_ends_answer() {
    let failure = json!({"error": {"message": "provider down", "code": 502}, "choices": []});
    let response = CannedResponse::stream(&[partial_answer(), sse(&[failure])].concat());
    let server = Server::start([response, ok()]).await;
    let (events, error) = events(&server.model(), prompt("Hello.")).await;
    assert_eq!(events.len(), 1);
    assert!(matches!(error, Some(ChatError::Rejected { status: Some(502), .. })));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = OpenAiSettings {
        base_url: format!("http://{}/v1", listener.local_addr().unwrap()),
        connect_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(100),
        ..OpenAiSettings::default()
    };
    let error = answer(&model(silent), prompt("Hello.")).await.unwrap_err();
    assert!(matches!(error, ChatError::TimedOut { phase: TimeoutPhase::Idle, .. }), "{error:?}");

    let server = Server::start([CannedResponse::stream(&partial_answer()).with_hang()]).await;
    let stalling = server.model_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    let (events, error) = events(&stalling, prompt("Hello.")).await;
    assert_eq!(events.len(), 1);
    assert!(matches!(error, Some(ChatError::TimedOut { phase: TimeoutPhase::Idle, .. })));
}

#[tokio::test]
async fn endless_error_body_does_not_delay_error() {
    let server =
        Server::start([CannedResponse::status(400, "half an explanation").with_hang()]).await;
    let model = server.model_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    let error = answer(&model, prompt("Hello.")).await.unwrap_err();
    assert!(error.to_string().contains("half an explanation"));

    let (error, _) =
        request_error([CannedResponse::status(400, &"x".repeat(1024 * 1024)).with_hang()]).await;
    assert!(error.to_string().len() < 1000);
}

#[tokio::test]
async fn missing_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let settings =
        OpenAiSettings { base_url: base_url.clone(), max_attempts: 2, ..Default::default() };
    let error = answer(&model(settings), prompt("Hello.")).await.unwrap_err();
    let ChatError::Unreachable { endpoint, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*endpoint, base_url);
}

#[tokio::test]
async fn malformed_and_oversized_events_are_rejected() {
    let (error, requests) =
        request_error([CannedResponse::stream("data: <nonsense>\n\n"), ok()]).await;
    assert!(matches!(error, ChatError::Malformed { .. }));
    assert_eq!(requests, 1);

    let endless = format!("data: {}", "x".repeat(1024 * 1024 + 1));
    let (error, _) = request_error([CannedResponse::stream(&endless).with_hang()]).await;
    assert!(matches!(error, ChatError::TooLarge { .. }));
}

#[tokio::test]
async fn debug_output_has_no_key() {
    let server = Server::start([]).await;
    assert!(!format!("{:?}", server.model()).contains("sk-test"));
}
