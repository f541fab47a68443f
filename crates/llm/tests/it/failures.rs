//! Servers that refuse, fail, stall and talk too much.

use std::time::Duration;

use rockbot_llm::{ChatError, OpenAiSettings, TimeoutPhase};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    answer, events, say,
    server::{Reply, Server, model, sse},
};

fn ok() -> Reply {
    Reply::events(&[json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]})])
}

fn half() -> String {
    sse(&[json!({"choices": [{"delta": {"content": "half"}}]})])
}

/// Asks once, and gives the error and how many requests the server saw.
async fn refused(replies: impl IntoIterator<Item = Reply>) -> (ChatError, usize) {
    let server = Server::start(replies).await;
    let error = answer(&server.model(), say("Hello.")).await.unwrap_err();
    (error, server.asked().len())
}

fn at_once(status: u16) -> Reply {
    Reply::status(status, r#"{"error":{"message":"later"}}"#).header("retry-after", "0")
}

#[tokio::test]
async fn transient_failures_are_repeated_with_the_same_request() {
    for status in [429, 500, 502, 503, 504] {
        let server = Server::start([at_once(status), at_once(status), ok()]).await;
        let answer = answer(&server.model(), say("Hello.")).await.unwrap();
        assert_eq!(answer.text, "ok");
        let asked = server.asked();
        assert_eq!(asked.len(), 3, "{status}");
        assert_eq!(asked[0].body, asked[2].body);
    }
}

#[tokio::test]
async fn attempts_are_bounded() {
    let (error, asked) = refused([at_once(429), at_once(429), at_once(429), ok()]).await;
    let ChatError::RateLimited { retry_after, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*retry_after, asked), (Some(Duration::ZERO), 3));

    let (error, asked) = refused([at_once(503), at_once(503), at_once(503), ok()]).await;
    assert!(matches!(error, ChatError::Rejected { status: Some(503), .. }));
    assert_eq!(asked, 3);
}

#[tokio::test]
async fn a_server_that_wants_a_long_rest_is_not_asked_again() {
    let reply = Reply::status(429, "slow down").header("retry-after", "3600");
    let (error, asked) = refused([reply, ok()]).await;
    let ChatError::RateLimited { retry_after, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*retry_after, asked), (Some(Duration::from_secs(3600)), 1));
}

#[tokio::test]
async fn a_failure_in_place_of_the_answer_is_repeated_too() {
    let failure = json!({"error": {"message": "provider down", "code": 502}});
    let in_stream = Reply::stream(&sse(std::slice::from_ref(&failure)));
    let in_body =
        Reply::status(200, &failure.to_string()).header("content-type", "application/json");
    let server = Server::start([in_stream, in_body, ok()]).await;
    let model = server.model();
    assert_eq!(answer(&model, say("Hello.")).await.unwrap().text, "ok");
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_refused_key_says_which_variable_to_set_and_not_what_it_held() {
    let body = r#"{"error":{"message":"Incorrect API key: sk-test","code":"invalid_api_key"}}"#;
    let (error, asked) = refused([Reply::status(401, body), ok()]).await;
    assert!(matches!(error, ChatError::Unauthorized { status: 401, .. }));
    assert!(error.to_string().contains("OPENAI_API_KEY"));
    assert!(!format!("{error} {error:?}").contains("sk-test"));
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn lasting_refusals_are_not_repeated() {
    let overflow = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let (error, asked) = refused([Reply::status(400, overflow), ok()]).await;
    assert!(matches!(error, ChatError::ContextOverflow { .. }));
    assert_eq!(asked, 1);

    let (error, asked) = refused([Reply::status(404, "no such model"), ok()]).await;
    let ChatError::ModelNotFound { model, .. } = &error else { panic!("{error:?}") };
    assert_eq!((model.as_str(), asked), ("test-model", 1));

    let (error, asked) = refused([Reply::status(400, "bad schema"), ok()]).await;
    assert!(matches!(error, ChatError::Rejected { status: Some(400), .. }));
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start([ok()]).await;
    let reply = Reply::status(307, "").header("location", &elsewhere.base_url);
    let (error, asked) = refused([reply]).await;
    assert!(matches!(error, ChatError::Rejected { status: Some(307), .. }));
    assert!(error.to_string().contains("base_url"));
    assert_eq!((asked, elsewhere.asked().len()), (1, 0));
}

#[tokio::test]
async fn a_web_page_is_a_wrong_base_url() {
    let page = Reply::status(200, "<html>").header("content-type", "text/html");
    let (error, _) = refused([page]).await;
    assert!(matches!(error, ChatError::Malformed { .. }));
    assert!(error.to_string().contains("base_url"));
}

#[tokio::test]
async fn half_an_answer_is_interrupted_and_never_asked_for_again() {
    for reply in [Reply::stream(&half()), Reply::stream(&half()).then_break()] {
        let server = Server::start([reply, ok()]).await;
        let (events, error) = events(&server.model(), say("Hello.")).await;
        assert_eq!(events.len(), 1);
        assert!(matches!(error, Some(ChatError::Interrupted { .. })), "{error:?}");
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_cut_before_its_first_event_is_asked_for_again() {
    let server = Server::start([Reply::stream(": waking up\n\n").then_break(), ok()]).await;
    assert_eq!(answer(&server.model(), say("Hello.")).await.unwrap().text, "ok");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_failure_after_the_first_event_ends_the_answer() {
    let failure = json!({"error": {"message": "provider down", "code": 502}, "choices": []});
    let reply = Reply::stream(&[half(), sse(&[failure])].concat());
    let server = Server::start([reply, ok()]).await;
    let (events, error) = events(&server.model(), say("Hello.")).await;
    assert_eq!(events.len(), 1);
    assert!(matches!(error, Some(ChatError::Rejected { status: Some(502), .. })));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_silent_server_times_out_before_and_within_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = OpenAiSettings {
        base_url: format!("http://{}/v1", listener.local_addr().unwrap()),
        connect_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(100),
        ..OpenAiSettings::default()
    };
    let error = answer(&model(mute), say("Hello.")).await.unwrap_err();
    assert!(matches!(error, ChatError::TimedOut { phase: TimeoutPhase::Idle, .. }), "{error:?}");

    let server = Server::start([Reply::stream(&half()).then_hang()]).await;
    let stalling = server.model_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    let (events, error) = events(&stalling, say("Hello.")).await;
    assert_eq!(events.len(), 1);
    assert!(matches!(error, Some(ChatError::TimedOut { phase: TimeoutPhase::Idle, .. })));
}

#[tokio::test]
async fn an_error_body_without_end_does_not_hold_up_the_error() {
    let server = Server::start([Reply::status(400, "half an explanation").then_hang()]).await;
    let model = server.model_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    let error = answer(&model, say("Hello.")).await.unwrap_err();
    assert!(error.to_string().contains("half an explanation"));

    let (error, _) = refused([Reply::status(400, &"x".repeat(1024 * 1024)).then_hang()]).await;
    assert!(error.to_string().len() < 1000);
}

#[tokio::test]
async fn no_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let settings =
        OpenAiSettings { base_url: base_url.clone(), max_attempts: 2, ..Default::default() };
    let error = answer(&model(settings), say("Hello.")).await.unwrap_err();
    let ChatError::Unreachable { endpoint, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*endpoint, base_url);
}

#[tokio::test]
async fn nonsense_and_endless_events_are_refused() {
    let (error, asked) = refused([Reply::stream("data: <nonsense>\n\n"), ok()]).await;
    assert!(matches!(error, ChatError::Malformed { .. }));
    assert_eq!(asked, 1);

    let endless = format!("data: {}", "x".repeat(1024 * 1024 + 1));
    let (error, _) = refused([Reply::stream(&endless).then_hang()]).await;
    assert!(matches!(error, ChatError::TooLarge { .. }));
}

#[tokio::test]
async fn no_key_is_in_the_debug_text_of_a_model() {
    let server = Server::start([]).await;
    assert!(!format!("{:?}", server.model()).contains("sk-test"));
}
