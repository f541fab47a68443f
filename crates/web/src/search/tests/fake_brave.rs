//! Brave's service with its limits and headers, on the clock of the test.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::api::{ApiError, ApiRequest, ApiResponse, ApiTransport, recorded::response};

const SECOND: Duration = Duration::from_secs(1);
const MONTH_SECONDS: u64 = 2_592_000;
/// Requests per month.
const QUOTA: usize = 15_000;

/// A fake of the service. All keys share its limits.
pub(super) struct FakeBrave {
    /// Requests per second.
    rate: usize,
    /// End of the month.
    reset: Instant,
    /// Duration of a request in each direction.
    latency: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Times of the requests that were accepted within the last second.
    accepted: VecDeque<Instant>,
    used: usize,
    statuses: Vec<u16>,
}

impl FakeBrave {
    /// Creates a service that accepts `left` requests in the rest of the month, which lasts for `reset`.
    pub(super) fn new(rate: usize, left: usize, reset: Duration) -> Arc<Self> {
        Arc::new(Self {
            rate,
            reset: Instant::now() + reset,
            latency: Duration::from_millis(40),
            state: Mutex::new(State { used: QUOTA - left, ..State::default() }),
        })
    }

    /// Returns the statuses of all responses so far.
    pub(super) fn statuses(&self) -> Vec<u16> {
        self.state.lock().statuses.clone()
    }

    /// Decides on a request that arrives now.
    pub(super) fn respond(&self) -> ApiResponse {
        let now = Instant::now();
        let mut state = self.state.lock();
        while state.accepted.front().is_some_and(|first| now - *first >= SECOND) {
            state.accepted.pop_front();
        }
        if now >= self.reset {
            state.used = 0;
        }
        let is_month_used_up = state.used >= QUOTA;
        let is_limited = is_month_used_up || state.accepted.len() >= self.rate;
        if !is_limited {
            state.accepted.push_back(now);
            state.used += 1;
        }
        let status = if is_limited { 429 } else { 200 };
        state.statuses.push(status);
        let remaining = (self.rate - state.accepted.len(), QUOTA - state.used);
        let left = self.reset.saturating_duration_since(now).as_secs();
        let policy = format!("{};w=1, {QUOTA};w={MONTH_SECONDS}", self.rate);
        let body = if is_limited {
            json!({"type": "ErrorResponse", "error": {
                "id": "a", "status": 429, "code": "RATE_LIMITED",
                "detail": "Request rate limit exceeded for plan",
                "meta": {"plan": "Free", "rate_limit": self.rate, "rate_current": self.rate,
                         "quota_limit": QUOTA, "quota_current": state.used,
                         "component": "rate_limiter"},
            }, "time": 1})
        } else {
            json!({"type": "search", "query": {"original": "rust", "more_results_available": true},
            "web": {"type": "search", "results": [
                {"title": "Rust", "url": "https://www.rust-lang.org/",
                 "description": "A language.", "language": "en"},
            ]}})
        };
        let headers = [
            ("x-ratelimit-policy", policy.as_str()),
            ("x-ratelimit-limit", &format!("{}, {QUOTA}", self.rate)),
            ("x-ratelimit-remaining", &format!("{}, {}", remaining.0, remaining.1)),
            ("x-ratelimit-reset", &format!("1, {}", left.max(1))),
        ];
        response(status, &headers, body)
    }
}

impl ApiTransport for FakeBrave {
    fn send(&self, _request: ApiRequest) -> BoxFuture<'_, Result<ApiResponse, ApiError>> {
        Box::pin(async move {
            sleep(self.latency).await;
            let response = self.respond();
            sleep(self.latency).await;
            Ok(response)
        })
    }
}
