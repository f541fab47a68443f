//! Brave Search.
//!
//! Shapes and limits: <https://api-dashboard.search.brave.com/app/documentation>. Only successful
//! requests count for the quota.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, header::ACCEPT};
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use super::{
    endpoint::{Endpoint, MAX_RESPONSE_BYTES, MAX_RESULTS, Rejection},
    failure::SearchFailure,
    provider::{Budget, Found, Freshness, SearchHit, SearchProvider, SearchQuery},
    section::{ProviderName, SafeSearch, SearchSection},
};
use crate::api::{ApiRequest, ApiResponse, ApiTransport, BoundedList, endpoint};

const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-subscription-token");
/// Error code that the service also sends for valid tokens, rarely.
const TOKEN_INVALID: &str = "SUBSCRIPTION_TOKEN_INVALID";

/// The provider `brave`.
pub(super) struct Brave {
    endpoint: Endpoint,
    url: Url,
    token: HeaderValue,
    country: Option<String>,
    language: Option<String>,
    safe_search: SafeSearch,
}

impl Brave {
    /// Creates the provider. It begins with one request per second, the lowest rate of all plans.
    pub(super) fn new(
        section: &SearchSection,
        base_url: &Url,
        token: HeaderValue,
        transport: Arc<dyn ApiTransport>,
    ) -> Self {
        Self {
            endpoint: Endpoint::new(
                ProviderName::Brave.name(),
                transport,
                1,
                Duration::from_secs(1),
            ),
            url: endpoint(base_url, ["res", "v1", "web", "search"]),
            token,
            country: section.country.clone(),
            language: section.language.clone(),
            safe_search: section.safesearch,
        }
    }

    fn request(&self, query: &SearchQuery, deadline: Instant) -> ApiRequest {
        let mut url = self.url.clone();
        {
            let mut pairs = url.query_pairs_mut();
            pairs
                .append_pair("q", &query.text)
                .append_pair("count", &query.count.to_string())
                .append_pair("text_decorations", "false")
                .append_pair("result_filter", "web,query")
                .append_pair("spellcheck", "true")
                .append_pair("safesearch", self.safe_search.name());
            if let Some(country) = &self.country {
                pairs.append_pair("country", country);
            }
            if let Some(language) = &self.language {
                pairs.append_pair("search_lang", &language.to_ascii_lowercase());
            }
            if let Some(freshness) = query.freshness {
                pairs.append_pair("freshness", period(freshness));
            }
        }
        ApiRequest::get(url, MAX_RESPONSE_BYTES, deadline)
            .with_header(ACCEPT, HeaderValue::from_static("application/json"))
            .with_header(TOKEN_HEADER, self.token.clone())
    }
}

impl SearchProvider for Brave {
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

fn period(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::Day => "pd",
        Freshness::Week => "pw",
        Freshness::Month => "pm",
        Freshness::Year => "py",
    }
}

#[derive(Deserialize)]
struct SearchResponse {
    query: Option<AnswerQuery>,
    web: Option<Web>,
}

#[derive(Deserialize)]
struct AnswerQuery {
    altered: Option<String>,
}

#[derive(Deserialize)]
struct Web {
    #[serde(default)]
    results: BoundedList<Page, MAX_RESULTS>,
}

#[derive(Deserialize)]
struct Page {
    title: Option<String>,
    url: Option<String>,
    description: Option<String>,
    age: Option<String>,
    page_age: Option<String>,
}

#[derive(Default, Deserialize)]
struct ErrorAnswer {
    #[serde(default)]
    error: ErrorBody,
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    code: Option<String>,
    #[serde(default)]
    meta: ErrorMeta,
}

#[derive(Default, Deserialize)]
struct ErrorMeta {
    quota_limit: Option<u64>,
    quota_current: Option<u64>,
}

impl ErrorMeta {
    fn is_used_up(&self) -> bool {
        let limit = self.quota_limit.filter(|limit| *limit > 0);
        limit.zip(self.quota_current).is_some_and(|(limit, current)| current >= limit)
    }
}

fn read(response: &ApiResponse) -> Result<Found, Rejection> {
    let status = response.status.as_u16();
    if status == 200 {
        return found(&response.body).ok_or(Rejection::Malformed);
    }
    let error = serde_json::from_slice::<ErrorAnswer>(&response.body).unwrap_or_default().error;
    Err(match status {
        429 if error.meta.is_used_up() => Rejection::Quota(None),
        429 => Rejection::Limited(response.retry_after()),
        402 => Rejection::Quota(None),
        401 | 403 => Rejection::Credentials { intermittent: false },
        422 if error.code.as_deref() == Some(TOKEN_INVALID) => {
            Rejection::Credentials { intermittent: true }
        }
        400 | 422 => Rejection::Refused,
        408 | 500..=599 => Rejection::Failed,
        _ => Rejection::Malformed,
    })
}

fn found(body: &[u8]) -> Option<Found> {
    let response: SearchResponse = serde_json::from_slice(body).ok()?;
    let pages: Vec<Page> = response.web.map(|web| web.results).unwrap_or_default().into();
    let hits = pages.into_iter().filter_map(|page| {
        Some(SearchHit {
            url: page.url?,
            title: page.title.unwrap_or_default(),
            snippet: page.description.unwrap_or_default(),
            age: page.age.or(page.page_age),
        })
    });
    let corrected = response.query.and_then(|query| query.altered);
    Some(Found { hits: hits.collect(), corrected })
}
