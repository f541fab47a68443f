//! Requests as each provider expects them, and the tool's definition.

use rockbot_contracts::{ToolErrorCode, ToolSource};
use rockbot_tools::{ArgumentSchema, Period, Tool};
use serde_json::{Value, json};

use super::{call, web_search};
use crate::api::{
    ApiRequest,
    recorded::{Recorded, response},
};

/// Calls the tool, and returns the only request.
async fn sent(section: Value, arguments: Value) -> ApiRequest {
    let transport = Recorded::new(|_| Ok(response(200, &[], r#"{"results":[]}"#)));
    let tool = web_search(section, transport.clone());
    call(&tool, arguments).await.expect("a result");
    let mut requests = transport.requests();
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

fn header<'a>(request: &'a ApiRequest, name: &str) -> Option<&'a str> {
    request.headers.get(name).map(|value| value.to_str().expect("text"))
}

#[tokio::test]
async fn brave_request_has_token_and_parameters() {
    let section = json!({"country": "DE", "language": "pt-BR", "safesearch": "strict",
                         "brave": {"api_key": "token"}});
    let arguments = json!({"query": " rust & \"c\"\n", "count": 7, "freshness": "week"});
    let request = sent(section, arguments).await;
    assert_eq!(
        request.url.as_str(),
        "https://api.search.brave.com/res/v1/web/search?q=rust+%26+%22c%22&count=7\
         &text_decorations=false&result_filter=web%2Cquery&spellcheck=true&safesearch=strict\
         &country=DE&search_lang=pt-br&freshness=pw"
    );
    assert_eq!(header(&request, "x-subscription-token"), Some("token"));
    assert_eq!(header(&request, "accept"), Some("application/json"));
    assert!(request.headers["x-subscription-token"].is_sensitive());
}

#[tokio::test]
async fn searxng_request_has_no_secret() {
    let section = json!({"language": "de", "safesearch": "off",
                         "searxng": {"url": "https://search.example.com/"}});
    let request = sent(section, json!({"query": "a", "freshness": "week"})).await;
    assert_eq!(
        request.url.as_str(),
        "https://search.example.com/search?q=a&format=json&pageno=1&safesearch=0&language=de\
         &time_range=week"
    );
    assert_eq!(header(&request, "authorization"), None);
}

#[tokio::test]
async fn tavily_request_has_key_or_keyless_mode() {
    let arguments = || json!({"query": "a", "freshness": "day"});
    let keyed = json!({"max_results": 3, "tavily": {"api_key": "tvly-1", "keyless": true}});
    let request = sent(keyed, arguments()).await;
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/search"));
    assert_eq!(header(&request, "authorization"), Some("Bearer tvly-1"));
    assert_eq!(header(&request, "x-tavily-access-mode"), None);
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!(
        body,
        json!({"query": "a", "max_results": 3, "search_depth": "basic", "topic": "general",
               "include_raw_content": false, "time_range": "day"})
    );
    let request = sent(json!({"tavily": {"keyless": true}}), arguments()).await;
    assert_eq!(header(&request, "authorization"), None);
    assert_eq!(header(&request, "x-tavily-access-mode"), Some("keyless"));
}

#[tokio::test]
async fn unusable_queries_are_refused_before_any_request() {
    let transport = Recorded::new(|_| Ok(response(500, &[], "")));
    let tool = web_search(json!({"brave": {"api_key": "key"}}), transport.clone());
    let long = "word ".repeat(51);
    for arguments in [
        json!({"query": " \n "}),
        json!({"query": long}),
        json!({"query": "a", "pages": 2}),
        json!({"query": "a", "freshness": "decade"}),
        json!({}),
    ] {
        let failure = call(&tool, arguments.clone()).await.unwrap_err();
        assert_eq!(failure.code(), ToolErrorCode::InvalidArguments, "{arguments}");
    }
    assert!(transport.requests().is_empty());
}

#[tokio::test]
async fn definition_permits_caching_and_bounds_arguments() {
    let transport = Recorded::new(|_| Ok(response(500, &[], "")));
    let tool = web_search(json!({"brave": {"api_key": "key"}}), transport);
    let registration = tool.registration();
    assert_eq!(
        (registration.source.clone(), registration.timeout_ms),
        (ToolSource::Web, Some(20_000))
    );
    assert!(registration.hints.read_only && registration.hints.open_world);
    let cache = tool.policy().and_then(|policy| policy.cache).and_then(Period::duration);
    assert_eq!(cache.map(|cache| cache.as_secs()), Some(600));
    assert!(ArgumentSchema::compile(&registration.parameters).is_ok());
}
