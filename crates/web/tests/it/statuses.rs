//! Redirects, statuses and refused addresses.

use rockbot_tools::{Executed, ToolFailure};
use rockbot_web::WebSection;

use crate::server::{Server, browse, ok, page_text, reply};

#[tokio::test]
async fn redirects_are_followed_within_limits() {
    let to = |status, location: &str| reply(status, &[("Location", location)], "");
    let server = Server::start([
        ("/1", to(301, "/2")),
        ("/2", to(302, "3")),
        ("/3", to(303, "/4")),
        ("/4", to(307, "/5")),
        ("/5", to(308, "/page")),
        ("/0", to(301, "/1")),
        ("/loop", to(302, "/loop")),
        ("/nowhere", reply(302, &[], "")),
        ("/metadata", to(302, "http://169.254.169.254/latest/meta-data/")),
        ("/file", to(302, "file:///etc/passwd")),
        ("/page", ok("text/plain", "arrived")),
    ])
    .await;
    let result = browse(&server.section(), &server.url("/1")).await.unwrap();
    assert_eq!(page_text(&result), "arrived");
    assert_eq!(result.details.unwrap()["url"], server.url("/page"));
    for path in ["/0", "/loop", "/nowhere", "/metadata", "/file"] {
        let refused = browse(&server.section(), &server.url(path)).await;
        match refused {
            Ok(result) => {
                assert!(result.is_error, "{path}");
                let text = result.to_text();
                assert!(text.contains("redirect"), "{path}: {text}");
                assert!(!text.contains("169.254"), "{path}: {text}");
            }
            Err(failure) => panic!("{path}: {failure}"),
        }
    }
}

#[tokio::test]
async fn statuses_become_outcomes() {
    let server = Server::start([
        ("/login", reply(401, &[], "<p>secret")),
        ("/gone", reply(410, &[], "")),
        ("/slow", reply(429, &[("Retry-After", "17")], "")),
        ("/broken", reply(502, &[], "")),
    ])
    .await;
    let browse = |path| {
        let (section, url) = (server.section(), server.url(path));
        async move { browse(&section, &url).await }
    };
    for (path, expected) in [
        ("/login", "The page was not read: the page needs a login (401)."),
        ("/gone", "The page was not read: there is no such page (410)."),
        ("/missing", "The page was not read: there is no such page (404)."),
    ] {
        let result = browse(path).await.unwrap();
        assert_eq!((result.to_text().as_ref(), result.is_error), (expected, true));
    }
    let failure = browse("/slow").await.unwrap_err();
    assert!(matches!(&failure, ToolFailure::Overloaded { message } if message.contains("17 s")));
    let failure = browse("/broken").await.unwrap_err();
    assert_eq!((failure.executed(), failure.is_retryable()), (Executed::No, true), "{failure}");
}

#[tokio::test]
async fn private_addresses_and_ports_are_refused() {
    let server = Server::start([("/", ok("text/plain", "private"))]).await;
    let permitted = server.section();
    for section in [
        WebSection { allow_private: Vec::new(), ..permitted.clone() },
        WebSection { ports: Vec::new(), ..permitted.clone() },
    ] {
        let failure = browse(&section, &server.url("/")).await.unwrap_err();
        assert!(matches!(failure, ToolFailure::NotPermitted { .. }), "{failure}");
        assert!(!failure.to_string().contains("127.0.0.1"), "{failure}");
    }
    assert!(server.requests().is_empty());
    for url in ["ftp://example.com/", "http://user@127.0.0.1/", "relative"] {
        let failure = browse(&permitted, url).await.unwrap_err();
        assert!(matches!(failure, ToolFailure::InvalidArguments { .. }), "{failure}");
    }
}
