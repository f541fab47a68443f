//! Tavily, with a key or without one.
//!
//! Shapes: <https://docs.tavily.com/documentation/api-reference/endpoint/search>.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{
    HeaderName, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use url::Url;

use super::{
    endpoint::{Endpoint, MAX_RESPONSE_BYTES, MAX_RESULTS, Rejection},
    failure::SearchFailure,
    provider::{Budget, Found, SearchHit, SearchProvider, SearchQuery},
    section::ProviderName,
};
use crate::api::{ApiRequest, ApiResponse, ApiTransport, BoundedList, endpoint};

/// Requests per minute that every key permits; the service announces no rate.
const RATE: u32 = 60;
/// A limit that lasts longer is a quota.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// The provider `tavily`.
pub(super) struct Tavily {
    endpoint: Endpoint,
    url: Url,
    access: (HeaderName, HeaderValue),
}

impl Tavily {
    /// Creates the provider. `access` is the header that permits requests: a key, or the keyless mode.
    pub(super) fn new(
        base_url: &Url,
        access: (HeaderName, HeaderValue),
        transport: Arc<dyn ApiTransport>,
    ) -> Self {
        Self {
            endpoint: Endpoint::new(
                ProviderName::Tavily.name(),
                transport,
                RATE,
                Duration::from_secs(60),
            ),
            url: endpoint(base_url, ["search"]),
            access,
        }
    }

    fn request(&self, query: &SearchQuery, deadline: Instant) -> ApiRequest {
        let mut body = json!({
            "query": query.text,
            "max_results": query.count,
            "search_depth": "basic",
            "topic": "general",
            "include_raw_content": false,
        });
        if let Some(freshness) = query.freshness {
            body["time_range"] = freshness.name().into();
        }
        let json = HeaderValue::from_static("application/json");
        let (name, value) = self.access.clone();
        let request = ApiRequest::get(self.url.clone(), MAX_RESPONSE_BYTES, deadline);
        ApiRequest { method: Method::POST, body: body.to_string().into_bytes(), ..request }
            .with_header(ACCEPT, json.clone())
            .with_header(CONTENT_TYPE, json)
            .with_header(name, value)
    }
}

impl SearchProvider for Tavily {
    fn name(&self) -> &'static str {
        self.endpoint.name()
    }

    fn search<'a>(
        &'a self,
        query: &'a SearchQuery,
        budget: Budget,
    ) -> BoxFuture<'a, Result<Found, SearchFailure>> {
        Box::pin(async move {
            let request = self.request(query, budget.deadline);
            self.endpoint.send(&request, budget, read).await
        })
    }
}

#[derive(Deserialize)]
struct SearchResponse {
    results: BoundedList<Page, MAX_RESULTS>,
}

#[derive(Deserialize)]
struct Page {
    title: Option<String>,
    url: Option<String>,
    content: Option<String>,
    published_date: Option<String>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    retry_after_seconds: Option<f64>,
}

fn read(response: &ApiResponse) -> Result<Found, Rejection> {
    match response.status.as_u16() {
        200 => found(&response.body).ok_or(Rejection::Malformed),
        429 => Err(match delay(response) {
            Some(delay) if delay > MAX_DELAY => Rejection::Quota(Some(delay)),
            delay => Rejection::Limited(delay),
        }),
        // The plan's limit, and the limit of pay-as-you-go.
        432 | 433 => Err(Rejection::Quota(delay(response))),
        401 | 403 => Err(Rejection::Credentials { intermittent: false }),
        400 | 422 => Err(Rejection::Refused),
        408 | 500..=599 => Err(Rejection::Failed),
        _ => Err(Rejection::Malformed),
    }
}

/// Returns the delay that a rejection states, at most a month.
fn delay(response: &ApiResponse) -> Option<Duration> {
    const MAX_SECONDS: f64 = 2_678_400.0;
    let error: Option<ErrorAnswer> = serde_json::from_slice(&response.body).ok();
    let seconds = error.and_then(|error| error.error.retry_after_seconds);
    let seconds = seconds.filter(|seconds| *seconds >= 0.0).map(|seconds| seconds.min(MAX_SECONDS));
    seconds.map(Duration::from_secs_f64).or_else(|| response.retry_after())
}

fn found(body: &[u8]) -> Option<Found> {
    let response: SearchResponse = serde_json::from_slice(body).ok()?;
    let pages: Vec<Page> = response.results.into();
    let hits = pages.into_iter().filter_map(|page| {
        Some(SearchHit {
            url: page.url?,
            title: page.title.unwrap_or_default(),
            snippet: page.content.unwrap_or_default(),
            age: page.published_date,
        })
    });
    Some(Found { hits: hits.collect(), corrected: None })
}
