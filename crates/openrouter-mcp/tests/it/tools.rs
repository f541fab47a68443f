//! Tools, their queries and their results.

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
async fn six_read_only_tools_are_listed() {
    for transport in TRANSPORTS {
        let client = Client::start_with(transport, "http://127.0.0.1:9").await;
        let tools = within_timeout("the tool list", client.session.list_all_tools()).await.unwrap();
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
async fn tool_sends_one_query_and_returns_its_json() {
    for transport in TRANSPORTS {
        let mut openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::start_with(transport, &openrouter.url).await;
        for (tool, arguments, target) in CALLS {
            let arguments = serde_json::from_str(arguments).unwrap();
            let (is_error, text) = client.call(tool, arguments).await;
            assert!(!is_error, "{tool}: {text}");
            let result: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(result, json!({ "data": target }), "{transport}, {tool}");
            let request = openrouter.requests.try_recv().unwrap();
            assert_eq!(request, format!("GET {target} Bearer {KEY}"), "{transport}, {tool}");
        }
        assert!(openrouter.requests.try_recv().is_err(), "{transport}: more than one query");
    }
}

#[tokio::test]
async fn invalid_arguments_return_tool_error_without_query() {
    for transport in TRANSPORTS {
        let mut openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let client = Client::start_with(transport, &openrouter.url).await;
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
            let case = format!("{transport}, {tool} {arguments}");
            let (is_error, text) = client.call(tool, arguments).await;
            assert!(is_error && text.contains("argument"), "{case}: {text}");
        }
        assert!(openrouter.requests.try_recv().is_err(), "{transport}: a query was sent");
    }
}

#[tokio::test]
async fn unknown_tool_returns_protocol_error() {
    for transport in TRANSPORTS {
        let client = Client::start_with(transport, "http://127.0.0.1:9").await;
        let unknown = request("delete_api_key", json!({}));
        let error =
            within_timeout("the response", client.session.call_tool(unknown)).await.unwrap_err();
        assert!(error.to_string().contains("unknown tool name"), "{transport}: {error}");
    }
}

#[tokio::test]
async fn client_without_handshake_is_served() {
    for transport in TRANSPORTS {
        let openrouter = ScriptedOpenRouter::start(Script::Echo).await;
        let settings = [("ROCKBOT_OPENROUTER__BASE_URL", openrouter.url.as_str())];
        let lifecycle = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        let client = Client::start_with_lifecycle(transport, &settings, lifecycle).await;
        let (is_error, text) = client.call("get_credits", json!({})).await;
        assert!(!is_error, "{transport}: {text}");
    }
}
