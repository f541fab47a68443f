//! Redirects that are followed.

use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use rockbot_egress::{
    ClientOptions, ClientRedirects, EgressError, Fetch, GuardedClient, Hop, RedirectRefused,
};

use crate::server::{HOST, ok, path, policy, redirect, serve_text, url};

fn client() -> GuardedClient {
    GuardedClient::new(Arc::new(policy()), ClientOptions::default()).unwrap()
}

/// Starts a server whose path `/STATUS` redirects to `location` with that status. Every other path
/// returns the head of the request.
async fn serve_redirects(location: &'static str) -> u16 {
    serve_text(move |head| match path(head)[1..].parse() {
        Ok(status) => redirect(status, location),
        Err(_) => ok(head),
    })
    .await
}

fn headers() -> HeaderMap {
    let mut key = HeaderValue::from_static("key-7");
    key.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer token-7"));
    headers.insert("x-api-key", key);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert("x-kept", HeaderValue::from_static("kept"));
    headers
}

fn post(port: u16, status: u16) -> Fetch {
    let start = url(&format!("http://{HOST}:{port}/{status}"));
    Fetch::new(&client(), Method::POST, start).with_headers(headers()).with_body("body")
}

#[tokio::test]
async fn method_and_body_follow_the_status() {
    let port = serve_redirects("/end").await;
    for status in [301, 302, 303] {
        let fetched = post(port, status).finish().await.unwrap();
        let head = fetched.response.text().await.unwrap().to_lowercase();
        assert!(head.starts_with("get /end "), "{status}: {head}");
        assert!(!head.contains("content-"), "{status}: {head}");
    }
    for status in [307, 308] {
        let fetched = post(port, status).finish().await.unwrap();
        let head = fetched.response.text().await.unwrap().to_lowercase();
        assert!(head.starts_with("post /end "), "{status}: {head}");
        assert!(head.contains("content-length: 4"), "{status}: {head}");
        assert!(head.contains("content-type: text/plain"), "{status}: {head}");
    }
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let port = serve_redirects("/end").await;
    let fetched = post(port, 307).finish().await.unwrap();
    let head = fetched.response.text().await.unwrap();
    for sent in ["token-7", "key-7", "x-kept: kept"] {
        assert!(head.contains(sent), "{sent} in {head}");
    }
    let elsewhere = serve_text(move |_| redirect(307, &format!("http://other.test:{port}/end")));
    let fetched = post(elsewhere.await, 307).finish().await.unwrap();
    assert_eq!(fetched.url.host_str(), Some("other.test"));
    let head = fetched.response.text().await.unwrap();
    assert!(head.contains("x-kept: kept"), "{head}");
    for secret in ["token-7", "key-7", "referer"] {
        assert!(!head.contains(secret), "{secret} in {head}");
    }
}

#[tokio::test]
async fn each_hop_is_returned_to_the_caller() {
    let port = serve_redirects("/end#new").await;
    let start = url(&format!("http://{HOST}:{port}/302#old"));
    let mut fetch = Fetch::new(&client(), Method::GET, start);
    let Hop::Redirect(redirect) = fetch.next_hop().await.unwrap() else { panic!("a redirect") };
    assert_eq!(redirect.response.status(), StatusCode::FOUND);
    assert_eq!((redirect.url.path(), redirect.url.fragment()), ("/end", Some("new")));
    assert!(redirect.is_same_origin);
    assert_eq!(fetch.url(), &redirect.url);
    let Hop::Response(response) = fetch.next_hop().await.unwrap() else { panic!("a response") };
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn fragment_is_kept() {
    let port = serve_redirects("/end").await;
    let start = url(&format!("http://{HOST}:{port}/302#part"));
    let fetched = Fetch::new(&client(), Method::GET, start).finish().await.unwrap();
    assert_eq!(fetched.url.fragment(), Some("part"));
}

#[tokio::test]
async fn endless_redirects_are_cut() {
    let port = serve_redirects("/302").await;
    let start = url(&format!("http://{HOST}:{port}/302"));
    let fetch = Fetch::new(&client(), Method::GET, start).with_max_redirects(3);
    let error = fetch.finish().await.unwrap_err();
    assert!(matches!(error, EgressError::Redirect(RedirectRefused::TooMany(3))), "{error:?}");
}

#[tokio::test]
async fn invalid_location_is_refused_and_missing_one_is_a_response() {
    let port = serve_redirects("http://[::1").await;
    let start = url(&format!("http://{HOST}:{port}/302"));
    let error = Fetch::new(&client(), Method::GET, start).finish().await.unwrap_err();
    assert!(matches!(error, EgressError::Redirect(RedirectRefused::Location)), "{error:?}");

    let port = serve_text(|_| ok("choices").replace("200 OK", "302 Found")).await;
    let start = url(&format!("http://{HOST}:{port}/"));
    let fetched = Fetch::new(&client(), Method::GET, start).finish().await.unwrap();
    assert_eq!(fetched.response.status(), StatusCode::FOUND);
}

#[tokio::test]
async fn same_origin_client_follows_only_redirects_that_keep_the_message() {
    let redirects = ClientRedirects::SameOrigin { max: 2 };
    let options = ClientOptions { redirects, ..ClientOptions::default() };
    let client = GuardedClient::new(Arc::new(policy()), options).unwrap();
    let post = async |port: u16, status: u16| {
        let request = client.request(Method::POST, url(&format!("http://{HOST}:{port}/{status}")));
        request?.body("body").send().await.map_err(EgressError::from)
    };
    let port = serve_redirects("/end").await;
    let head = post(port, 308).await.unwrap().text().await.unwrap();
    assert!(head.starts_with("POST /end "), "{head}");
    let drops = post(port, 302).await.unwrap_err();
    assert!(
        matches!(drops, EgressError::Redirect(RedirectRefused::DropsMessage(302))),
        "{drops:?}"
    );
    let circle = serve_redirects("/307").await;
    let error = post(circle, 307).await.unwrap_err();
    assert!(matches!(error, EgressError::Redirect(RedirectRefused::TooMany(2))), "{error:?}");
    let elsewhere = serve_text(move |_| redirect(307, &format!("http://other.test:{port}/end")));
    let error = post(elsewhere.await, 307).await.unwrap_err();
    assert!(matches!(error, EgressError::Redirect(RedirectRefused::ForeignOrigin)), "{error:?}");
}
