//! Many searches at once, and used-up quotas.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, advance},
};

use super::{super::tool::WebSearch, fake_brave::FakeBrave, search, web_search};

fn brave() -> Value {
    json!({"brave": {"api_key": "key"}})
}

/// Searches `count` times at once with each tool, and returns the failures.
pub(super) async fn search_at_once(tools: &[Arc<WebSearch>], count: usize) -> Vec<String> {
    let mut searches = JoinSet::new();
    for tool in tools {
        for _ in 0..count {
            let tool = tool.clone();
            searches.spawn(async move { search(&tool).await });
        }
    }
    let results = searches.join_all().await;
    results.into_iter().filter_map(Result::err).map(|failure| failure.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn replicas_that_share_a_key_answer_every_search() {
    let service = FakeBrave::new(1, 15_000, Duration::from_secs(1_000_000));
    let replicas = [(); 2].map(|()| Arc::new(web_search(brave(), service.clone())));
    let start = Instant::now();
    let failures = search_at_once(&replicas, 5).await;
    assert_eq!(failures, [""; 0]);
    assert!(start.elapsed() <= Duration::from_secs(20), "{:?}", start.elapsed());
    let statuses = service.statuses();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn single_process_is_never_refused() {
    let service = FakeBrave::new(1, 15_000, Duration::from_secs(1_000_000));
    let tool = [Arc::new(web_search(brave(), service.clone()))];
    assert_eq!(search_at_once(&tool, 8).await, [""; 0]);
    assert_eq!(service.statuses(), [200; 8]);
}

#[tokio::test(start_paused = true)]
async fn announced_rate_is_used() {
    let service = FakeBrave::new(50, 15_000, Duration::from_secs(1_000_000));
    let tool = [Arc::new(web_search(brave(), service.clone()))];
    assert_eq!(search_at_once(&tool, 1).await, [""; 0]);
    let start = Instant::now();
    assert_eq!(search_at_once(&tool, 40).await, [""; 0]);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(service.statuses(), [200; 41]);
}

#[tokio::test(start_paused = true)]
async fn long_line_is_overloaded_with_wait() {
    let service = FakeBrave::new(1, 15_000, Duration::from_secs(1_000_000));
    let tool = [Arc::new(web_search(brave(), service.clone()))];
    let failures = search_at_once(&tool, 30).await;
    assert_eq!(failures.len(), 20);
    for failure in failures {
        assert!(
            failure.contains("overloaded: ") && failure.contains("try again in 11 s"),
            "{failure}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn used_up_month_causes_one_request_until_reset() {
    let month = Duration::from_secs(3_600);
    let service = FakeBrave::new(1, 0, month);
    let tool = web_search(brave(), service.clone());
    for _ in 0..5 {
        let failure = search(&tool).await.unwrap_err();
        assert!(failure.is_retryable(), "{failure}");
        assert!(failure.to_string().contains("the quota is used up for 60 min"), "{failure}");
    }
    assert_eq!(service.statuses(), [429]);
    advance(month).await;
    search(&tool).await.expect("a result after the reset");
    assert_eq!(service.statuses(), [429, 200]);
}

#[tokio::test(start_paused = true)]
async fn last_request_of_a_month_ends_the_requests() {
    let service = FakeBrave::new(1, 2, Duration::from_secs(3_600));
    let tool = web_search(brave(), service.clone());
    for _ in 0..2 {
        search(&tool).await.expect("a result");
    }
    for _ in 0..3 {
        search(&tool).await.unwrap_err();
    }
    assert_eq!(service.statuses(), [200, 200]);
}
