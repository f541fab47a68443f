//! Tokens, redirects, pages, and conditional requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use super::{
    super::GithubFailure, github, json_response, not_found, read, requested, text_response,
    with_section,
};
use crate::api::recorded::{Recorded, response};

const REPOSITORY: &str = "https://github.com/acme/rocket";
const RELEASES: &str = "https://github.com/acme/rocket/releases";

#[tokio::test]
async fn token_and_version_are_sent_to_the_api_only() {
    let transport = Recorded::new(|_| Ok(json_response(&json!([]))));
    let section = json!({"token": "ghp_1", "api_url": "https://github.example.com/api/v3/"});
    read(&with_section(section, transport.clone()), RELEASES).await.expect("a page");
    read(&with_section(json!({}), transport.clone()), RELEASES).await.expect("a page");
    let requests = transport.requests();
    let url = "https://github.example.com/api/v3/repos/acme/rocket/releases?per_page=10";
    assert_eq!(requests[0].url.as_str(), url);
    assert_eq!(requests[0].headers["authorization"], "Bearer ghp_1");
    assert!(requests[0].headers["authorization"].is_sensitive());
    assert_eq!(requests[0].headers["x-github-api-version"], "2022-11-28");
    assert_eq!(requests[1].url.host_str(), Some("api.github.com"));
    assert!(!requests[1].headers.contains_key("authorization"));
}

#[tokio::test]
async fn redirect_is_followed_within_the_origin() {
    let transport = Recorded::new(|request| {
        Ok(match request.url.path() {
            "/repos/acme/rocket/releases" => {
                response(301, &[("location", "/repositories/7/releases?per_page=10")], "")
            }
            "/repositories/7/releases" => json_response(&json!([])),
            _ => not_found(),
        })
    });
    read(&github(transport.clone()), RELEASES).await.expect("a page");
    assert_eq!(transport.requests().len(), 2);
}

#[tokio::test]
async fn redirect_to_another_origin_is_refused() {
    for location in [
        "https://evil.example/repos",
        "http://api.github.com/repos",
        "https://api.github.com:8443/",
        "//evil.example/",
        "javascript:x",
    ] {
        let transport = Recorded::new(move |_| Ok(response(302, &[("location", location)], "")));
        let failure = read(&github(transport.clone()), RELEASES).await.unwrap_err();
        assert_eq!(failure, GithubFailure::Malformed, "{location}");
        assert_eq!(transport.requests().len(), 1, "{location}");
    }
    let transport = Recorded::new(|_| Ok(response(302, &[("location", "/again")], "")));
    assert!(read(&github(transport.clone()), RELEASES).await.is_err());
    assert_eq!(transport.requests().len(), 4);
}

#[tokio::test]
async fn unchanged_answer_is_read_from_memory() {
    let transport = Recorded::new(|request| {
        Ok(match request.headers.get("if-none-match") {
            Some(etag) if etag == "\"v1\"" => response(304, &[], ""),
            _ => {
                let headers = [("etag", "\"v1\""), ("content-type", "application/json")];
                response(200, &headers, json!([{"tag_name": "v1"}]))
            }
        })
    });
    let github = github(transport.clone());
    let first = read(&github, RELEASES).await.expect("a page");
    let second = read(&github, RELEASES).await.expect("a page");
    assert_eq!(first, second);
    assert!(first.markdown.contains("## v1"));
    let conditional =
        transport.requests().iter().filter(|r| r.headers.contains_key("if-none-match")).count();
    assert_eq!((conditional, transport.requests().len()), (1, 2));
}

#[tokio::test]
async fn at_most_three_pages_of_comments_are_read() {
    let transport = Recorded::new(|request| {
        let (path, _) = requested(request);
        Ok(if path.contains("/comments?") {
            let page: Vec<_> = (0..100).map(|_| json!({"body": "x"})).collect();
            let next = ("link", "<https://api.github.com/x?page=9>; rel=\"next\"");
            response(200, &[next, ("content-type", "application/json")], json!(page))
        } else {
            json_response(&json!({"number": 1, "title": "t", "comments": 950}))
        })
    });
    let document = read(&github(transport.clone()), "https://github.com/a/b/issues/1").await;
    let markdown = document.expect("a page").markdown;
    assert_eq!(markdown.matches("## Comment by ghost").count(), 300);
    assert!(markdown.ends_with("[the first 300 of 950 comments]\n"), "{markdown}");
    assert_eq!(transport.requests().len(), 4);
}

#[tokio::test]
async fn long_changes_are_cut_at_a_line() {
    let transport = Recorded::new(|_| Ok(text_response(&"+0123456789\n".repeat(50_000))));
    let url = "https://github.com/a/b/pull/1.diff";
    let markdown = read(&github(transport), url).await.expect("a page").markdown;
    assert!(markdown.len() < 210_000, "{}", markdown.len());
    assert!(markdown.ends_with("+0123456789\n```\n\n[cut: the changes are longer than 200 KiB]\n"));
}

#[tokio::test]
async fn search_for_long_references_is_bounded() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counter = lists.clone();
    let transport = Recorded::new(move |request| {
        Ok(if request.url.path().contains("/git/matching-refs/") {
            counter.fetch_add(1, Ordering::Relaxed);
            json_response(&json!([{"ref": "refs/heads/other"}]))
        } else {
            not_found()
        })
    });
    let url = format!("{REPOSITORY}/blob/a/b/c/d/e");
    let failure = read(&github(transport.clone()), &url).await.unwrap_err();
    assert_eq!(failure, GithubFailure::NotFound { with_token: true });
    assert_eq!((lists.load(Ordering::Relaxed), transport.requests().len()), (2, 3));
}

#[tokio::test]
async fn file_in_place_of_folder_and_reverse_are_shown() {
    let transport = Recorded::new(|request| {
        let (path, media) = requested(request);
        Ok(match (path.as_str(), media.as_str()) {
            ("/repos/a/b/contents/file.txt?ref=main", "+json") => {
                json_response(&json!({"name": "file.txt", "type": "file"}))
            }
            ("/repos/a/b/contents/file.txt?ref=main", "raw+json") => text_response("hello"),
            ("/repos/a/b/contents/folder?ref=main", "raw+json") => {
                json_response(&json!([{"name": "x", "type": "dir", "html_url": "https://x/"}]))
            }
            _ => not_found(),
        })
    });
    let github = github(transport);
    let file = read(&github, "https://github.com/a/b/tree/main/file.txt").await.expect("a page");
    assert!(file.markdown.contains("```txt\nhello\n```"), "{}", file.markdown);
    let folder = read(&github, "https://github.com/a/b/blob/main/folder").await.expect("a page");
    assert!(folder.markdown.contains("- [x/](https://x/)"), "{}", folder.markdown);
}
