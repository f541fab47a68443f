//! What the tools ask and answer.

use rmcp::{ClientLifecycleMode, model::ProtocolVersion};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};

use crate::program::{Client, TRANSPORTS, request};
use crate::scripted::{KEY, Script, ScriptedOpenRouter};

const CALLS: [(&str, &str, &str); 6] = [
    ("get_credits", "{}", "/api/v1/credits"),
    ("get_api_key_info", "{}", "/api/v1/key"),
    ("list_models", "{}", "/api/v1/models"),
    ("list_api_keys", "{}", "/api/v1/keys"),
    ("get_api_key", r#"{"keyHash":"f01d-ee_3"}"#, "/api/v1/keys/f01d-ee_3"),
    ("get_generation", r#"{"generationId":"gen-1A"}"#, "/api/v1/generation?id=gen-1A"),
];

#[tokio::test]
async fn six_tools_are_listed_and_none_changes_anything() {
    for transport in TRANSPORTS {
        let client = Client::of(transport, "http://127.0.0.1:9").await;
        let tools = within_timeout("a list", client.session.list_all_tools()).await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, CALLS.map(|(name, ..)| name), "{transport}");
        for tool in tools {
            let annotations = tool.annotations.unwrap();
            assert_eq!(annotations.read_only_hint, Some(true), "{}", tool.name);
            assert_eq!(annotations.destructive_hint, Some(false), "{}", tool.name);
            assert_eq!(tool.input_schema["additionalProperties"], json!(false), "{}", tool.name);
        }
    }
}

#[tokio::test]
async fn each_tool_asks_openrouter_once_with_the_key_and_answers_its_json() {
    for transport in TRANSPORTS {
        let mut openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::of(transport, &openrouter.url).await;
        for (tool, arguments, target) in CALLS {
            let arguments = serde_json::from_str(arguments).unwrap();
            let (is_error, text) = client.call(tool, arguments).await;
            assert!(!is_error, "{tool}: {text}");
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer, json!({ "data": target }), "{transport}, {tool}");
            let asked = openrouter.requests.try_recv().unwrap();
            assert_eq!(asked, format!("GET {target} Bearer {KEY}"), "{transport}, {tool}");
        }
        assert!(openrouter.requests.try_recv().is_err(), "{transport}: asked more than once");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_a_tool_error_and_nothing_is_asked() {
    for transport in TRANSPORTS {
        let mut openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::of(transport, &openrouter.url).await;
        for (tool, arguments) in [
            ("get_credits", json!({"limit": 1})),
            ("get_api_key", json!({})),
            ("get_api_key", json!({"keyHash": "../credits"})),
            ("get_api_key", json!({"keyHash": "a%2Fb"})),
            ("get_api_key", json!({"keyHash": ""})),
            ("get_generation", json!({"generationId": "a&id=b"})),
            ("get_generation", json!({"generationId": ["a"]})),
            ("get_generation", json!({"generationId": "a".repeat(129)})),
        ] {
            let told = format!("{transport}, {tool} {arguments}");
            let (is_error, text) = client.call(tool, arguments).await;
            assert!(is_error && text.contains("argument"), "{told}: {text}");
        }
        assert!(openrouter.requests.try_recv().is_err(), "{transport}: something was asked");
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
    for transport in TRANSPORTS {
        let client = Client::of(transport, "http://127.0.0.1:9").await;
        let unknown = request("delete_api_key", json!({}));
        let error =
            within_timeout("an answer", client.session.call_tool(unknown)).await.unwrap_err();
        assert!(error.to_string().contains("no tool of that name"), "{transport}: {error}");
    }
}

#[tokio::test]
async fn a_client_without_a_handshake_is_served_as_well() {
    for transport in TRANSPORTS {
        let openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let settings = [("ROCKBOT_OPENROUTER__BASE_URL", openrouter.url.as_str())];
        let newest = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        let client = Client::start_as(transport, &settings, newest).await;
        let (is_error, text) = client.call("get_credits", json!({})).await;
        assert!(!is_error, "{transport}: {text}");
    }
}
