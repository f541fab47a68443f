//! robots.txt.

use rockbot_tools::{Executed, ToolFailure};
use rockbot_web::{RobotsMode, WebOptions, WebSection};
use serde_json::json;

use crate::server::{Server, browse, call, ok, page_text, reply, tool};

fn respecting(server: &Server) -> WebSection {
    WebSection { robots: RobotsMode::Respect, ..server.section() }
}

#[tokio::test]
async fn excluded_page_is_not_requested() {
    let server = Server::start([
        ("/robots.txt", ok("text/plain", "User-agent: *\nDisallow: /private\n")),
        ("/private/a", ok("text/plain", "private")),
        ("/public", ok("text/plain", "public")),
        ("/hop", reply(302, &[("Location", "/private/a")], "")),
    ])
    .await;
    let tool = tool(&respecting(&server), WebOptions::default());
    for path in ["/private/a", "/hop"] {
        let result = call(&tool, json!({"url": server.url(path)})).await.unwrap();
        assert!(result.is_error && result.to_text().contains("robots.txt"), "{result:?}");
    }
    let result = call(&tool, json!({"url": server.url("/public")})).await.unwrap();
    assert_eq!(page_text(&result), "public");
    let requests = server.requests();
    let paths: Vec<_> = requests.iter().filter_map(|head| head.split(' ').nth(1)).collect();
    assert_eq!(paths, ["/robots.txt", "/hop", "/public"], "the rules are read once");
}

#[tokio::test]
async fn rules_are_absent_unknown_or_ignored() {
    let page = || ("/page", ok("text/plain", "page"));
    let server = Server::start([page()]).await;
    let result = browse(&respecting(&server), &server.url("/page")).await.unwrap();
    assert_eq!(page_text(&result), "page");

    let server = Server::start([page(), ("/robots.txt", reply(503, &[], ""))]).await;
    let failure = browse(&respecting(&server), &server.url("/page")).await.unwrap_err();
    assert!(
        matches!(failure, ToolFailure::Unavailable { executed: Executed::No, .. }),
        "{failure}"
    );
    let result = browse(&server.section(), &server.url("/page")).await.unwrap();
    assert_eq!(page_text(&result), "page");
}
