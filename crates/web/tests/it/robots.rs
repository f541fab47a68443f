//! robots.txt.

use std::time::Duration;

use rockbot_tools::{Executed, ToolFailure};
use rockbot_web::{RobotsMode, WebOptions, WebSection};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};

use crate::server::{Server, browse, call, context, ok, page_text, reply, tool};

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

/// A call that ends while the rules are read decides nothing for the next.
#[tokio::test]
async fn deadline_of_a_caller_is_not_an_answer_of_the_site() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let section = WebSection {
        ports: vec![port],
        allow_private: vec!["127.0.0.0/8".to_owned()],
        robots: RobotsMode::Respect,
        ..WebSection::default()
    };
    let tool = tool(&section, WebOptions::default());
    let arguments = json!({"url": format!("http://127.0.0.1:{port}/page")});
    let mut early = context();
    early.deadline = Instant::now() + Duration::from_millis(300);
    // The first connection stays open without a reply.
    let (first, silent) = tokio::join!(tool.call(arguments.clone(), &early), listener.accept());
    first.unwrap_err();
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&ok("text/plain", "Allow: /")).await;
        }
    };
    let result = tokio::select! {
        result = call(&tool, arguments) => result.unwrap(),
        () = serve => unreachable!(),
    };
    assert_eq!(page_text(&result), "Allow: /");
    drop(silent);
}
