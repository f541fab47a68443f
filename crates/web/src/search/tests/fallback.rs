//! The order of providers.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::{
    super::{section::SearchSection, tool::WebSearch},
    fake_brave::FakeBrave,
    search, web_search,
};
use crate::api::{
    ApiTransport,
    recorded::{Recorded, response},
};

const SECOND: Duration = Duration::from_secs(1);
const TAVILY: &str =
    r#"{"results":[{"title":"T","url":"https://tavily.example/","content":"c","score":0.5}]}"#;

fn both() -> Value {
    json!({"brave": {"api_key": "key"}, "tavily": {"api_key": "key"}})
}

/// Searches with Brave, which responds with `status`, and Tavily, which finds a page. Returns the result
/// and the hosts of all requests.
async fn searched(status: u16, body: &'static str) -> (Result<String, String>, Vec<String>) {
    let transport = Recorded::new(move |request| {
        Ok(match request.url.host_str() {
            Some("api.search.brave.com") => response(status, &[("retry-after", "60")], body),
            _ => response(200, &[], TAVILY),
        })
    });
    let tool = web_search(both(), transport.clone());
    let result = search(&tool).await.map_err(|failure| failure.to_string());
    let hosts = transport
        .requests()
        .into_iter()
        .map(|request| request.url.host_str().unwrap_or_default().to_owned());
    (result, hosts.collect())
}

#[tokio::test(start_paused = true)]
async fn next_provider_is_tried_after_a_failure() {
    let failures =
        [(401, ""), (402, ""), (429, ""), (500, ""), (404, ""), (200, "<html>"), (403, "")];
    for (status, body) in failures {
        let (result, hosts) = searched(status, body).await;
        let text = result.expect("a result");
        assert!(text.starts_with("1 result for \"rust\" (tavily)\n1. [T]"), "{status}: {text}");
        assert_eq!(hosts, ["api.search.brave.com", "api.tavily.com"], "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_query_ends_the_search() {
    let (result, hosts) = searched(422, r#"{"error":{"code":"VALIDATION"}}"#).await;
    assert_eq!(
        result.unwrap_err(),
        "invalid arguments: search failed: brave: the query is refused with status 422; shorten \
         or rephrase it"
    );
    assert_eq!(hosts, ["api.search.brave.com"]);
}

#[tokio::test(start_paused = true)]
async fn used_up_provider_gets_no_request() {
    let transport = Recorded::new(|request| {
        Ok(match request.url.host_str() {
            Some("api.search.brave.com") => response(402, &[], ""),
            _ => response(200, &[], TAVILY),
        })
    });
    let tool = web_search(both(), transport.clone());
    for _ in 0..3 {
        search(&tool).await.expect("a result");
    }
    let requests = transport.requests();
    let brave =
        requests.iter().filter(|request| request.url.host_str() == Some("api.search.brave.com"));
    assert_eq!((brave.count(), requests.len()), (1, 4));
}

/// Searches through a Brave of which `left` requests of the month are left, until after its reset. Returns
/// the provider of each result, and Brave's statuses.
async fn searched_around_reset(left: usize) -> (Vec<String>, Vec<u16>) {
    let month = Duration::from_secs(3_600);
    let brave = FakeBrave::new(50, left, month);
    let service = brave.clone();
    let transport = Recorded::new(move |request| {
        Ok(match request.url.host_str() {
            Some("api.search.brave.com") => service.respond(),
            _ => response(200, &[], TAVILY),
        })
    });
    let tool = web_search(both(), transport);
    let start = Instant::now();
    let mut providers = Vec::new();
    for _ in 0..5 {
        providers.push(provider(&search(&tool).await.expect("a result")));
    }
    // The clock of the test moves on only while a search waits.
    advance(month - SECOND - start.elapsed()).await;
    providers.push(provider(&search(&tool).await.expect("a result")));
    advance(month - start.elapsed()).await;
    providers.push(provider(&search(&tool).await.expect("a result")));
    (providers, brave.statuses())
}

/// Returns the provider that the first line of a result names.
fn provider(text: &str) -> String {
    let (_, provider) = text.lines().next().unwrap_or_default().rsplit_once('(').expect("a name");
    provider.trim_end_matches(')').to_owned()
}

#[tokio::test(start_paused = true)]
async fn used_up_month_passes_searches_on_until_reset() {
    let (providers, statuses) = searched_around_reset(0).await;
    assert_eq!(providers, [["tavily"; 6].as_slice(), &["brave"]].concat());
    assert_eq!(statuses, [429, 200]);
}

#[tokio::test(start_paused = true)]
async fn last_request_of_month_passes_later_searches_on() {
    let (providers, statuses) = searched_around_reset(1).await;
    assert_eq!(providers, [&["brave"], ["tavily"; 5].as_slice(), &["brave"]].concat());
    assert_eq!(statuses, [200, 200]);
}

#[tokio::test(start_paused = true)]
async fn configured_order_is_kept() {
    let transport = Recorded::new(|_| Ok(response(500, &[], "")));
    let section = json!({
        "providers": ["searxng", "brave"],
        "brave": {"api_key": "key"},
        "tavily": {"keyless": true},
        "searxng": {"url": "http://localhost:8080/sub"},
    });
    let failure = search(&web_search(section, transport.clone())).await.unwrap_err().to_string();
    let urls: Vec<_> = transport.requests().into_iter().map(|request| request.url).collect();
    assert_eq!(urls.len(), 2);
    assert!(urls[0].as_str().starts_with("http://localhost:8080/sub/search?q=rust&format=json"));
    assert!(failure.contains("searxng: ") && failure.contains(". brave: "), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn all_failures_end_within_the_timeout() {
    let transport = Recorded::new(|_| Ok(response(429, &[], "")));
    let tool = web_search(both(), transport);
    let start = Instant::now();
    let failure = search(&tool).await.unwrap_err();
    assert!(failure.to_string().starts_with("overloaded: "), "{failure}");
    assert!(start.elapsed() <= Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test]
async fn nothing_configured_says_how_to_configure() {
    let transport: std::sync::Arc<dyn ApiTransport> = Recorded::new(|_| Ok(response(500, &[], "")));
    let section = SearchSection::default();
    let error = WebSearch::from_section(&section, |_| None, &transport).unwrap_err().to_string();
    assert!(error.contains("BRAVE_API_KEY") && error.contains("searxng.url"), "{error}");
    let environment = |name: &str| (name == "BRAVE_API_KEY").then(|| "key".to_owned());
    assert!(WebSearch::from_section(&section, environment, &transport).is_ok());
}
