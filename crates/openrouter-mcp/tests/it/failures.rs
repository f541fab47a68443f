//! Error messages of failed queries, and data that must not leak.

use rockbot_testkit::fixture::within_timeout;
use serde_json::json;

use crate::program::{Client, TRANSPORTS, request, terminate};
use crate::scripted::{KEY, Script, ScriptedOpenRouter};

/// Failures and their messages. OpenRouter repeats the key in every response.
fn failures() -> Vec<(Script, &'static str)> {
    let respond =
        |status| Script::Respond(status, format!(r#"{{"error":{{"message":"Bearer {KEY}"}}}}"#));
    vec![
        (respond(401), "returned 401 Unauthorized: the key is not accepted"),
        (respond(402), "returned 402 Payment Required: the account has no credits left"),
        (
            respond(403),
            "returned 403 Forbidden: the key lacks the permission; use a management key",
        ),
        (respond(404), "returned 404 Not Found: not found in this account"),
        (respond(429), "returned 429: too many requests; try again in 7 s"),
        (respond(500), "returned 500 Internal Server Error: OpenRouter failed"),
        (respond(302), "returned 302 Found: redirects are not followed"),
        (Script::Respond(200, format!("<html>{KEY}")), "response is not JSON"),
        (Script::Respond(200, String::new()), "response is not JSON"),
        (Script::Endless, "exceeds the limit of 4096 bytes"),
        (Script::Silent, "did not respond within 1 s"),
    ]
}

#[tokio::test]
async fn openrouter_failure_returns_tool_error_without_key() {
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
            openrouter.set_script(script.clone());
            let (is_error, text) = client.call("get_credits", json!({})).await;
            assert!(is_error && text.contains(expected), "{transport}, {script:?}: {text}");
            assert!(!text.contains(KEY), "{transport}, {script:?}: {text}");
        }
        openrouter.set_script(Script::Echo);
        let (is_error, text) = client.call("get_credits", json!({})).await;
        assert!(!is_error, "{transport}: the next call succeeds: {text}");
        let log = client.log.text();
        assert!(log.contains("tool call failed"), "{transport}: failures are logged");
        assert!(!log.contains(KEY), "{transport}: the key is in the log, at the level trace");
    }
}

#[tokio::test]
async fn unreachable_openrouter_returns_tool_error_without_address() {
    for transport in TRANSPORTS {
        let client = Client::start_with(transport, "http://127.0.0.1:9/api/v1").await;
        let (is_error, text) = client.call("list_models", json!({})).await;
        assert_eq!((is_error, text.as_str()), (true, "OpenRouter cannot be reached"));
    }
}

#[tokio::test]
async fn key_in_response_is_redacted() {
    for transport in TRANSPORTS {
        let script = Script::Respond(200, format!(r#"{{"label":"{KEY}"}}"#));
        let openrouter = ScriptedOpenRouter::start(script).await;
        let client = Client::start_with(transport, &openrouter.url).await;
        let result = client.call("get_api_key_info", json!({})).await;
        assert_eq!(result, (false, r#"{"label":"[the key]"}"#.to_owned()), "{transport}");
    }
}

#[tokio::test]
async fn client_messages_are_not_logged() {
    for transport in TRANSPORTS {
        let openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::start_with(transport, &openrouter.url).await;
        client.call("get_api_key", json!({"keyHash": "said-to-it"})).await;
        client.call("get_api_key", json!({"keyHash": "said to it"})).await;
        let unknown = request("said_to_it", json!({}));
        within_timeout("the response", client.session.call_tool(unknown)).await.unwrap_err();
        terminate(client.pid).await;
        client.log.line_with("shutdown requested").await;
        let log = client.log.text();
        assert!(!log.contains("said"), "{transport}: {log}");
    }
}
