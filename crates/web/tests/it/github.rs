//! Pages of GitHub whose API is not available.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::ToolErrorCode;
use rockbot_tools::{ToolFailure, ToolResult};
use rockbot_web::{
    PageRouter, RouteOutcome, WebOptions, WebSection,
    api::GuardedTransport,
    github::{Github, GithubSection},
};
use serde_json::json;
use tokio::time::Instant;
use url::Url;

use crate::server::{Reply, Server, call, ok, page_text, reply, tool};

/// Path of a page of GitHub, and of its request to the API.
const PAGE: &str = "/acme/rocket/releases";
const API: &str = "/api/repos/acme/rocket/releases?per_page=10";

/// Reads the pages of the test's server as those of GitHub.
struct Mirror(Github);

impl PageRouter for Mirror {
    fn route<'a>(
        &'a self,
        url: &Url,
        deadline: Instant,
    ) -> Option<BoxFuture<'a, Result<RouteOutcome, ToolFailure>>> {
        let github = Url::parse("https://github.com").unwrap().join(url.path()).unwrap();
        self.0.route(&github, deadline)
    }
}

/// Returns a section and options that read GitHub's API from the server, with a token.
fn mirror(server: &Server) -> (WebSection, WebOptions) {
    let section = server.section();
    let github = json!({"token": "ghp_secret", "api_url": server.url("/api")});
    let github: GithubSection = serde_json::from_value(github).unwrap();
    let transport = GuardedTransport::new(vec!["127.0.0.0/8".parse().unwrap()]).unwrap();
    let github = Github::from_section(&github, |_| None, Arc::new(transport)).unwrap();
    let options = WebOptions { router: Some(Arc::new(Mirror(github))), ..WebOptions::default() };
    (section, options)
}

/// Reads the page through `web_browse` twice. `page` is the page itself, if the server has it.
async fn browsed_twice(
    api: Reply,
    page: Option<Reply>,
) -> ([Result<ToolResult, ToolFailure>; 2], Vec<String>) {
    let page = page.map(|page| (PAGE, page));
    let server = Server::start([(API, api)].into_iter().chain(page)).await;
    let (section, options) = mirror(&server);
    let tool = tool(&section, options);
    let arguments = || json!({"url": server.url(PAGE)});
    let results = [call(&tool, arguments()).await, call(&tool, arguments()).await];
    let targets = server.requests().into_iter();
    let targets = targets.map(|head| head.split(' ').nth(1).unwrap().to_owned());
    (results, targets.collect())
}

fn limited() -> Reply {
    let headers =
        [("X-RateLimit-Limit", "60"), ("X-RateLimit-Remaining", "0"), ("Retry-After", "40")];
    reply(403, &headers, r#"{"message":"API rate limit exceeded"}"#)
}

fn page() -> Reply {
    ok("text/html", "<title>Releases</title><main><p>Version 1.2 of the rocket</p></main>")
}

#[tokio::test]
async fn page_that_replaces_limited_api_has_the_wait() {
    let (results, requests) = browsed_twice(limited(), Some(page())).await;
    for result in results {
        let result = result.unwrap();
        let text = result.to_text();
        let note = text.lines().find(|line| line.starts_with("Note: ")).unwrap();
        let seconds = note.strip_prefix("Note: GitHub's API is limited for ").unwrap();
        let (seconds, rest) = seconds.split_once(' ').unwrap();
        assert!((1..=40).contains(&seconds.parse::<u32>().unwrap()), "{note}");
        assert_eq!(rest, "s; this is the page, which may have less.");
        assert_eq!(page_text(&result), "Version 1.2 of the rocket");
        let details = result.details.as_ref().unwrap();
        assert_eq!(format!("Note: {}.", details["notes"][0].as_str().unwrap()), note);
    }
    // The limit is remembered.
    assert_eq!(requests, [API, PAGE, PAGE]);
}

#[tokio::test]
async fn limited_api_without_page_is_overloaded_with_the_wait() {
    let empty = ok("text/html", "<script>app()</script>");
    for page in [None, Some(reply(429, &[], "")), Some(reply(500, &[], "")), Some(empty)] {
        let (results, requests) = browsed_twice(limited(), page).await;
        for result in results {
            let failure = result.unwrap_err();
            assert_eq!(failure.code(), ToolErrorCode::Overloaded, "{failure}");
            assert!(failure.is_retryable());
            let text = failure.to_string();
            let seconds =
                text.strip_prefix("overloaded: GitHub limits the requests; try again in ");
            let seconds: u32 =
                seconds.and_then(|text| text.strip_suffix(" s")).unwrap().parse().unwrap();
            assert!((1..=40).contains(&seconds), "{text}");
        }
        assert_eq!(requests, [API, PAGE, PAGE]);
    }
}

#[tokio::test]
async fn refused_token_is_reported() {
    let refused = || reply(401, &[], r#"{"message":"Bad credentials"}"#);
    let ([result, _], _) = browsed_twice(refused(), Some(page())).await;
    let text = result.unwrap().to_text().into_owned();
    let note =
        "Note: GitHub's API does not accept the token; this is the page, which may have less.\n";
    assert!(text.contains(note), "{text}");

    let ([result, _], _) = browsed_twice(refused(), None).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::ExecutionFailed);
    assert_eq!(failure.to_string(), "GitHub does not accept the token; notify an operator");
}

#[tokio::test]
async fn page_that_the_api_has_has_no_note() {
    let release = json!([{"tag_name": "v1.2", "name": "Version 1.2", "body": "Faster."}]);
    let api = ok("application/json", release.to_string());
    let ([result, _], requests) = browsed_twice(api, Some(page())).await;
    let result = result.unwrap();
    assert!(page_text(&result).contains("Faster."), "{result:?}");
    assert_eq!(result.details.unwrap()["notes"], json!([]));
    assert_eq!(requests, [API, API]);
}
