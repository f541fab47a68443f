//! Every rejection of every provider, as failure and as metric.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use rockbot_contracts::ToolErrorCode::{
    self, ExecutionFailed, InvalidArguments, Overloaded, Unavailable,
};
use rockbot_tools::Executed;
use serde_json::{Value, json};

use super::{search, web_search};
use crate::api::{
    ApiError,
    recorded::{Recorded, response},
};

fn sections() -> [(&'static str, Value); 3] {
    [
        ("brave", json!({"brave": {"api_key": "key"}})),
        ("searxng", json!({"searxng": {"url": "http://search.example.com"}})),
        ("tavily", json!({"tavily": {"api_key": "key"}})),
    ]
}

/// Searches with one provider that always responds alike. Returns the failure, and the requests by
/// outcome.
async fn outcome(
    provider: &str,
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: &str,
) -> (Option<(ToolErrorCode, Executed)>, BTreeMap<String, u64>) {
    let section = sections().into_iter().find(|(name, _)| *name == provider).expect("a name").1;
    let body = body.to_owned();
    let transport = Recorded::new(move |_| Ok(response(status, headers, &body)));
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let result = {
        let _local = metrics::set_default_local_recorder(&recorder);
        search(&web_search(section, transport)).await
    };
    let mut counts = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        if key.name() != "rockbot_web_search_requests_total" {
            continue;
        }
        let label = |name| {
            let label = key.labels().find(|label| label.key() == name);
            label.expect("a label").value().to_owned()
        };
        assert_eq!(label("provider"), provider);
        let DebugValue::Counter(count) = value else { panic!("a counter") };
        counts.insert(label("outcome"), count);
    }
    (result.err().map(|failure| (failure.code(), failure.executed())), counts)
}

const TOKEN_INVALID: &str = r#"{"error":{"status":422,"code":"SUBSCRIPTION_TOKEN_INVALID"}}"#;
const VALIDATION: &str = r#"{"error":{"status":422,"code":"VALIDATION","meta":{}}}"#;
const MONTH: &str =
    r#"{"error":{"code":"RATE_LIMITED","meta":{"quota_limit":2000,"quota_current":2000}}}"#;
const KEYLESS_DAY: &str = r#"{"error":{"code":"x","window":"day","retry_after_seconds":40000}}"#;
const UNRESPONSIVE: &str = r#"{"results":[],"unresponsive_engines":[["google","timeout"]]}"#;

#[tokio::test(start_paused = true)]
async fn rejections_map_to_failures() {
    type Row = (&'static str, u16, &'static str, ToolErrorCode, Executed, &'static str, u64);
    let rows: [Row; 31] = [
        ("brave", 400, "", InvalidArguments, Executed::No, "refused", 1),
        ("brave", 422, VALIDATION, InvalidArguments, Executed::No, "refused", 1),
        ("brave", 422, TOKEN_INVALID, ExecutionFailed, Executed::Yes, "credentials", 2),
        ("brave", 401, "", ExecutionFailed, Executed::Yes, "credentials", 1),
        ("brave", 403, "", ExecutionFailed, Executed::Yes, "credentials", 1),
        ("brave", 402, "", Unavailable, Executed::No, "quota", 1),
        ("brave", 429, MONTH, Unavailable, Executed::No, "quota", 1),
        ("brave", 500, "", Unavailable, Executed::No, "unreachable", 1),
        ("brave", 503, "<html>", Unavailable, Executed::No, "unreachable", 1),
        ("brave", 404, "", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("brave", 302, "", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("brave", 200, "<html>", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("brave", 200, r#"{"web":{"results":{}}}"#, ExecutionFailed, Executed::Yes, "malformed", 1),
        ("searxng", 400, "", InvalidArguments, Executed::No, "refused", 1),
        ("searxng", 403, "", ExecutionFailed, Executed::Yes, "credentials", 1),
        ("searxng", 500, "", Unavailable, Executed::No, "unreachable", 1),
        ("searxng", 200, UNRESPONSIVE, Unavailable, Executed::No, "unreachable", 1),
        ("searxng", 200, "<html>", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("searxng", 200, "{}", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("tavily", 400, "", InvalidArguments, Executed::No, "refused", 1),
        ("tavily", 401, "", ExecutionFailed, Executed::Yes, "credentials", 1),
        ("tavily", 403, "", ExecutionFailed, Executed::Yes, "credentials", 1),
        ("tavily", 432, "", Unavailable, Executed::No, "quota", 1),
        ("tavily", 433, "", Unavailable, Executed::No, "quota", 1),
        ("tavily", 429, KEYLESS_DAY, Unavailable, Executed::No, "quota", 1),
        ("tavily", 502, "", Unavailable, Executed::No, "unreachable", 1),
        ("tavily", 200, "[]", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("tavily", 404, "", ExecutionFailed, Executed::Yes, "malformed", 1),
        ("brave", 408, "", Unavailable, Executed::No, "unreachable", 1),
        ("searxng", 429, "", Overloaded, Executed::No, "limited", 16),
        ("tavily", 429, "", Overloaded, Executed::No, "limited", 16),
    ];
    for (provider, status, body, code, executed, metric, requests) in rows {
        let (failure, counts) = outcome(provider, status, &[], body).await;
        assert_eq!(failure, Some((code, executed)), "{provider} {status} {body}");
        let (counted, count) = counts.into_iter().next().expect("a counted request");
        assert_eq!(counted, metric, "{provider} {status} {body}");
        // Requests that are limited are sent again until the time is over.
        assert!(count == requests || metric == "limited" && count > 1, "{provider} {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_delay_is_not_waited_for() {
    let (failure, counts) = outcome("searxng", 429, &[("retry-after", "30")], "").await;
    assert_eq!(failure, Some((Overloaded, Executed::No)));
    assert_eq!(counts, BTreeMap::from([("limited".to_owned(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn accepted_request_is_counted() {
    for (provider, body) in
        [("brave", "{}"), ("searxng", r#"{"results":[]}"#), ("tavily", r#"{"results":[]}"#)]
    {
        let (failure, counts) = outcome(provider, 200, &[], body).await;
        assert_eq!((failure, counts), (None, BTreeMap::from([("ok".to_owned(), 1)])));
    }
}

#[tokio::test(start_paused = true)]
async fn intermittently_invalid_token_is_retried_once() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let transport = Recorded::new(move |_| {
        Ok(match counter.fetch_add(1, Ordering::Relaxed) {
            0 => response(422, &[], TOKEN_INVALID),
            _ => response(200, &[], r#"{"web":{"results":[]}}"#),
        })
    });
    let tool = web_search(sections()[0].1.clone(), transport);
    assert_eq!(search(&tool).await.expect("a result"), "No results found.");
    assert_eq!(sent.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_request_is_unavailable_without_details() {
    let transport = Recorded::new(|_| Err(ApiError::Failed("connect to 10.1.2.3 failed".into())));
    let failure = search(&web_search(sections()[0].1.clone(), transport)).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "unavailable: search failed: brave: the service cannot be reached; try again later"
    );
    assert_eq!((failure.executed(), failure.is_retryable()), (Executed::No, true));
}
