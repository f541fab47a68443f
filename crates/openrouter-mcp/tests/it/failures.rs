//! What a client learns when OpenRouter fails, and what nobody learns.

use rockbot_testkit::fixture::within_timeout;
use serde_json::json;

use crate::program::{Client, TRANSPORTS, request, terminate};
use crate::scripted::{KEY, Script, ScriptedOpenRouter};

/// What each failure is called. OpenRouter repeats the key in all of its words.
fn failures() -> Vec<(Script, &'static str)> {
    let says = |status| Script::Say(status, format!(r#"{{"error":{{"message":"Bearer {KEY}"}}}}"#));
    vec![
        (says(401), "answered 401 Unauthorized: the key is not accepted"),
        (says(402), "answered 402 Payment Required: the account has no credits left"),
        (says(403), "answered 403 Forbidden: the key may not do that; it takes a management key"),
        (says(404), "answered 404 Not Found: there is no such thing in this account"),
        (says(429), "answered 429: too many requests; try again in 7 s"),
        (says(500), "answered 500 Internal Server Error: OpenRouter has a problem"),
        (says(302), "answered 302 Found: redirects are not followed"),
        (Script::Say(200, format!("<html>{KEY}")), "answer is not JSON"),
        (Script::Say(200, String::new()), "answer is not JSON"),
        (Script::Endless, "has more than 4096 bytes"),
        (Script::Silence, "did not answer within 1 s"),
    ]
}

#[tokio::test]
async fn every_failure_of_openrouter_is_a_tool_error_in_our_words() {
    for transport in TRANSPORTS {
        let openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::start(
            transport,
            &[
                ("ROCKBOT_OPENROUTER__BASE_URL", &openrouter.url),
                ("ROCKBOT_OPENROUTER__TIMEOUT", "1s"),
                ("ROCKBOT_OPENROUTER__MAX_RESPONSE_BYTES", "4096"),
                ("ROCKBOT_LOG__LEVEL", "trace"),
            ],
        )
        .await;
        for (script, expected) in failures() {
            openrouter.now_says(script.clone());
            let (is_error, text) = client.call("get_credits", json!({})).await;
            assert!(is_error && text.contains(expected), "{transport}, {script:?}: {text}");
            assert!(!text.contains(KEY), "{transport}, {script:?}: {text}");
        }
        openrouter.now_says(Script::Echo);
        let (is_error, text) = client.call("get_credits", json!({})).await;
        assert!(!is_error, "{transport}: works again: {text}");
        let log = client.log.text();
        assert!(log.contains("a call failed"), "{transport}: failures are logged");
        assert!(!log.contains(KEY), "{transport}: the key is in the log, at the level trace");
    }
}

#[tokio::test]
async fn an_openrouter_that_is_not_there_is_a_tool_error_without_its_address() {
    for transport in TRANSPORTS {
        let client = Client::of(transport, "http://127.0.0.1:9/api/v1").await;
        let (is_error, text) = client.call("list_models", json!({})).await;
        assert_eq!((is_error, text.as_str()), (true, "OpenRouter cannot be reached"));
    }
}

#[tokio::test]
async fn a_key_that_openrouter_repeats_in_an_answer_is_covered() {
    for transport in TRANSPORTS {
        let says = Script::Say(200, format!(r#"{{"label":"{KEY}"}}"#));
        let openrouter = ScriptedOpenRouter::start(says).await;
        let client = Client::of(transport, &openrouter.url).await;
        let told = client.call("get_api_key_info", json!({})).await;
        assert_eq!(told, (false, r#"{"label":"[the key]"}"#.to_owned()), "{transport}");
    }
}

#[tokio::test]
async fn what_clients_say_is_not_logged() {
    for transport in TRANSPORTS {
        let openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::of(transport, &openrouter.url).await;
        client.call("get_api_key", json!({"keyHash": "said-to-it"})).await;
        client.call("get_api_key", json!({"keyHash": "said to it"})).await;
        let unknown = request("said_to_it", json!({}));
        within_timeout("an answer", client.session.call_tool(unknown)).await.unwrap_err();
        terminate(client.pid).await;
        client.log.line_with("shutdown requested").await;
        let log = client.log.text();
        assert!(!log.contains("said"), "{transport}: {log}");
    }
}
