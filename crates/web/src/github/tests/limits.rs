//! Rate limits and other rejections.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rockbot_contracts::ToolErrorCode;
use rockbot_tools::ToolFailure;
use serde_json::json;
use tokio::time::{Instant, advance};
use url::Url;

use super::{super::GithubFailure, github, json_response, read, with_section};
use crate::{
    api::{
        ApiError,
        recorded::{Recorded, response},
    },
    page_router::{PageRouter, RouteOutcome},
};

const URL: &str = "https://github.com/acme/rocket/releases";

/// Returns the failure for a response.
async fn rejected(status: u16, headers: &'static [(&'static str, &'static str)]) -> GithubFailure {
    let transport = Recorded::new(move |_| Ok(response(status, headers, "{}")));
    read(&github(transport), URL).await.unwrap_err()
}

#[tokio::test]
async fn rejections_map_to_failures() {
    for (status, failure, allows_page) in [
        (401, GithubFailure::Credentials, true),
        (403, GithubFailure::Refused { status: 403 }, false),
        (404, GithubFailure::NotFound { with_token: true }, false),
        (410, GithubFailure::NotFound { with_token: true }, false),
        (406, GithubFailure::TooLarge, false),
        (429, GithubFailure::Limited { after: Duration::from_secs(60) }, true),
        (451, GithubFailure::Refused { status: 451 }, false),
        (500, GithubFailure::Unreachable, true),
        (204, GithubFailure::Malformed, true),
        (304, GithubFailure::Malformed, true),
        (200, GithubFailure::Malformed, true),
    ] {
        assert_eq!(rejected(status, &[]).await, failure, "{status}");
        assert_eq!(failure.allows_page(), allows_page, "{status}");
    }
    let without_token = with_section(json!({}), Recorded::new(|_| Ok(response(404, &[], ""))));
    let failure = read(&without_token, URL).await.unwrap_err();
    assert!(failure.allows_page(), "{failure:?}");
}

#[tokio::test]
async fn failed_request_is_unreachable() {
    for (error, expected) in [
        (|| ApiError::TimedOut, GithubFailure::Unreachable),
        (|| ApiError::Failed("x".into()), GithubFailure::Unreachable),
        (|| ApiError::TooLarge { limit: 1 }, GithubFailure::TooLarge),
    ] as [(fn() -> ApiError, GithubFailure); 3]
    {
        let transport = Recorded::new(move |_| Err(error()));
        assert_eq!(read(&github(transport), URL).await.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn limit_states_the_wait() {
    let retry_after = rejected(403, &[("retry-after", "30")]).await;
    assert_eq!(retry_after, GithubFailure::Limited { after: Duration::from_secs(30) });
    let failure = ToolFailure::from(retry_after);
    assert_eq!(failure.code(), ToolErrorCode::Overloaded);
    assert!(failure.to_string().contains("try again in 30 s"), "{failure}");

    let far = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "99999999999")];
    let hour = GithubFailure::Limited { after: Duration::from_secs(3_600) };
    assert_eq!(rejected(403, far).await, hour);
    let past = &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")];
    let default = GithubFailure::Limited { after: Duration::from_secs(60) };
    assert_eq!(rejected(403, past).await, default);

    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let reset: &'static str = Box::leak((now + 100).to_string().into_boxed_str());
    let headers =
        Box::leak(Box::new([("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)]));
    let GithubFailure::Limited { after } = rejected(429, headers).await else { panic!("limited") };
    assert!((90..=100).contains(&after.as_secs()), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn no_request_is_sent_until_the_limit_ends() {
    let transport = Recorded::new(|request| {
        let is_first = request.url.path().ends_with("/limited/releases");
        let headers = [("retry-after", "30")];
        Ok(if is_first { response(429, &headers, "") } else { json_response(&json!([])) })
    });
    let github = github(transport.clone());
    read(&github, "https://github.com/acme/limited/releases").await.unwrap_err();
    let failure = read(&github, URL).await.unwrap_err();
    assert!(matches!(failure, GithubFailure::Limited { .. }), "{failure:?}");
    assert_eq!(transport.requests().len(), 1);
    advance(Duration::from_secs(30)).await;
    read(&github, URL).await.expect("a page");
    assert_eq!(transport.requests().len(), 2);
}

#[tokio::test]
async fn page_itself_is_read_when_the_api_is_not_available() {
    let deadline = Instant::now() + Duration::from_secs(30);
    let url = Url::parse(URL).expect("a URL");
    for (status, note, code) in [
        (429, "is limited for 60 s", ToolErrorCode::Overloaded),
        (401, "does not accept the token", ToolErrorCode::ExecutionFailed),
        (500, "cannot be reached", ToolErrorCode::Unavailable),
        (204, "sent a response that cannot be read", ToolErrorCode::ExecutionFailed),
    ] {
        let github = github(Recorded::new(move |_| Ok(response(status, &[], ""))));
        let routed = github.route(&url, deadline).expect("a page of the API").await;
        let Ok(RouteOutcome::Failed(failed)) = routed else { panic!("{status}: {routed:?}") };
        let expected = format!("GitHub's API {note}; this is the page, which may have less");
        assert_eq!((failed.note, failed.failure.code()), (expected, code), "{status}");
    }
    for status in [404, 406] {
        let github = github(Recorded::new(move |_| Ok(response(status, &[], ""))));
        let routed = github.route(&url, deadline).expect("a page of the API").await;
        assert!(routed.is_err(), "{status}: {routed:?}");
    }
    let without_token = with_section(json!({}), Recorded::new(|_| Ok(response(404, &[], ""))));
    let routed = without_token.route(&url, deadline).expect("a page of the API").await;
    assert!(matches!(routed, Ok(RouteOutcome::Unknown)), "{routed:?}");

    let github = github(Recorded::new(|_| Ok(json_response(&json!([])))));
    let other = Url::parse("https://github.com/acme/rocket/wiki").expect("a URL");
    assert!(github.route(&other, deadline).is_none());
    let routed = github.route(&url, deadline).expect("a page of the API").await;
    assert!(matches!(routed, Ok(RouteOutcome::Page(_))), "{routed:?}");
}
