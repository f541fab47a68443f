//! Requests to one provider, with pacing, retries and counters.

use std::{sync::Arc, time::Duration};

use metrics::{counter, gauge, histogram};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    failure::SearchFailure,
    pacer::{Pacer, SendPermit},
    provider::Budget,
    rate_limits::RateLimits,
};
use crate::api::{ApiError, ApiRequest, ApiResponse, ApiTransport};

/// Limit of a response body.
pub(super) const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
/// Maximum number of results that are read.
pub(super) const MAX_RESULTS: usize = 100;
/// Maximum duration of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests for one search.
const MAX_REQUESTS: u32 = 16;
/// Delay after a rate-limited response that states none.
const DEFAULT_DELAY: Duration = Duration::from_secs(1);
/// Minimum delay after a rate-limited response.
const MIN_DELAY: Duration = Duration::from_millis(200);
/// Maximum random addition to a delay, in milliseconds: it spreads the requests of replicas that share a key.
const MAX_JITTER_MS: u64 = 250;
/// Maximum delay of later searches after a rejection.
const MAX_HOLD: Duration = Duration::from_secs(60);
/// Assumed time until an exhausted quota resets, if the provider states none.
const DEFAULT_QUOTA_RESET: Duration = Duration::from_secs(3_600);

/// Reason why a provider rejected a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// Too many requests at once, with the requested delay.
    Limited(Option<Duration>),
    /// The quota of a longer period is used up, with the time until it resets.
    Quota(Option<Duration>),
    /// The provider rejects the key.
    Credentials {
        /// `true` if the provider also rejects valid keys with this response now and then.
        intermittent: bool,
    },
    /// The provider rejects the query.
    Refused,
    /// The provider failed.
    Failed,
    /// The response is not one of this API: a wrong base URL, or a change of the API.
    Malformed,
}

/// Sends the requests of one provider.
pub(super) struct Endpoint {
    name: &'static str,
    transport: Arc<dyn ApiTransport>,
    pacer: Pacer,
    exhausted_until: Mutex<Option<Instant>>,
}

impl Endpoint {
    /// Creates an endpoint that begins with `limit` requests in each `window`.
    pub(super) fn new(
        name: &'static str,
        transport: Arc<dyn ApiTransport>,
        limit: u32,
        window: Duration,
    ) -> Self {
        let pacer = Pacer::new(limit, window);
        Self { name, transport, pacer, exhausted_until: Mutex::new(None) }
    }

    /// Returns the name of the provider.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Sends `request`; resends it while it is rate-limited, and once after an intermittent credentials
    /// error, within the budget. `read` returns the result in a response, or the reason of its rejection.
    ///
    /// # Errors
    /// See [`SearchFailure`].
    pub(super) async fn send<T>(
        &self,
        request: &ApiRequest,
        budget: Budget,
        read: impl Fn(&ApiResponse) -> Result<T, Rejection>,
    ) -> Result<T, SearchFailure> {
        self.check_quota()?;
        let permit = self.acquire_permit(budget).await?;
        let mut may_retry_credentials = true;
        for _ in 0..MAX_REQUESTS {
            // Another search may have used up the quota while this one waited.
            self.check_quota()?;
            let response = self.request(request, budget.deadline).await?;
            let limits = RateLimits::from_response(&response);
            self.learn(&limits);
            let rejection = match read(&response) {
                Ok(result) => {
                    self.count("ok");
                    return Ok(result);
                }
                Err(Rejection::Limited(_)) if limits.exhausted().is_some() => {
                    Rejection::Quota(limits.exhausted())
                }
                Err(Rejection::Limited(after)) => Rejection::Limited(after.or(limits.reset)),
                Err(other) => other,
            };
            let failure = self.reject(rejection, &response);
            match rejection {
                Rejection::Limited(_) => self.wait_for_retry(&permit, budget, failure).await?,
                Rejection::Credentials { intermittent: true } if may_retry_credentials => {
                    may_retry_credentials = false;
                    self.wait_for_retry(&permit, budget, failure).await?;
                }
                _ => return Err(failure),
            }
        }
        Err(SearchFailure::Limited { after: DEFAULT_DELAY })
    }

    async fn acquire_permit(&self, budget: Budget) -> Result<SendPermit<'_>, SearchFailure> {
        let start = Instant::now();
        let left = budget.deadline.saturating_duration_since(start);
        let acquire = self.pacer.acquire(budget.max_wait.min(left));
        let acquired = tokio::time::timeout_at(budget.deadline, acquire).await;
        histogram!("rockbot_web_search_wait_seconds", "provider" => self.name)
            .record(start.elapsed().as_secs_f64());
        match acquired {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(too_long)) => Err(SearchFailure::Limited { after: too_long.expected }),
            Err(_) => Err(SearchFailure::Limited { after: DEFAULT_DELAY }),
        }
    }

    async fn request(
        &self,
        request: &ApiRequest,
        deadline: Instant,
    ) -> Result<ApiResponse, SearchFailure> {
        let deadline = deadline.min(Instant::now() + REQUEST_TIMEOUT);
        let request = ApiRequest { deadline, ..request.clone() };
        self.transport.send(request).await.map_err(|error| self.transport_failure(&error))
    }

    fn transport_failure(&self, error: &ApiError) -> SearchFailure {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        warn!(provider = self.name, %error, cause, "search request failed");
        let (outcome, failure) = match error {
            ApiError::Failed(_) | ApiError::TimedOut => ("unreachable", SearchFailure::Unreachable),
            ApiError::TooLarge { .. } => ("malformed", SearchFailure::Malformed),
        };
        self.count(outcome);
        failure
    }

    fn learn(&self, limits: &RateLimits) {
        if let Some(rate) = &limits.rate {
            self.pacer.learn(rate);
        }
        if let Some(remaining) = limits.quota.and_then(|quota| quota.remaining) {
            gauge!("rockbot_web_search_quota_remaining", "provider" => self.name)
                .set(f64::from(remaining));
        }
        if let Some(left) = limits.exhausted() {
            self.exhaust(left);
        }
    }

    fn exhaust(&self, left: Duration) -> Instant {
        let until = Instant::now() + left;
        let mut exhausted_until = self.exhausted_until.lock();
        if exhausted_until.is_none_or(|known| known <= Instant::now()) {
            warn!(provider = self.name, seconds = left.as_secs(), "search quota used up");
        }
        *exhausted_until = Some(until);
        until
    }

    fn check_quota(&self) -> Result<(), SearchFailure> {
        let until = *self.exhausted_until.lock();
        match until {
            Some(until) if until > Instant::now() => Err(SearchFailure::Quota { until }),
            _ => Ok(()),
        }
    }

    /// Counts a rejection, and returns the failure to report unless the request is resent.
    fn reject(&self, rejection: Rejection, response: &ApiResponse) -> SearchFailure {
        let status = response.status.as_u16();
        let (outcome, failure) = match rejection {
            Rejection::Limited(after) => {
                let after = after.unwrap_or(DEFAULT_DELAY).max(MIN_DELAY);
                ("limited", SearchFailure::Limited { after })
            }
            Rejection::Quota(left) => {
                gauge!("rockbot_web_search_quota_remaining", "provider" => self.name).set(0.0);
                let until = self.exhaust(left.unwrap_or(DEFAULT_QUOTA_RESET));
                ("quota", SearchFailure::Quota { until })
            }
            Rejection::Credentials { .. } => {
                warn!(provider = self.name, status, "search provider refuses access");
                ("credentials", SearchFailure::Credentials)
            }
            Rejection::Refused => ("refused", SearchFailure::Refused { status }),
            Rejection::Failed => ("unreachable", SearchFailure::Unreachable),
            Rejection::Malformed => {
                warn!(provider = self.name, status, "search response cannot be read");
                ("malformed", SearchFailure::Malformed)
            }
        };
        self.count(outcome);
        failure
    }

    /// Waits until the request may be resent, or returns `failure` if the budget does not allow it.
    async fn wait_for_retry(
        &self,
        permit: &SendPermit<'_>,
        budget: Budget,
        failure: SearchFailure,
    ) -> Result<(), SearchFailure> {
        let delay = match failure {
            SearchFailure::Limited { after } => after,
            _ => MIN_DELAY,
        };
        let jitter = Duration::from_millis(rand::random_range(0..=MAX_JITTER_MS));
        self.pacer.hold((delay + jitter).min(MAX_HOLD));
        if Instant::now() + delay >= budget.deadline {
            return Err(failure);
        }
        debug!(provider = self.name, ?delay, "search request rejected; retrying after a delay");
        let next = tokio::time::timeout_at(budget.deadline, permit.next_request()).await;
        next.map_err(|_| failure)
    }

    fn count(&self, outcome: &'static str) {
        counter!(
            "rockbot_web_search_requests_total",
            "provider" => self.name,
            "outcome" => outcome
        )
        .increment(1);
    }
}
