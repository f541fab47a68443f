//! SearXNG: a metasearch server of the operator.
//!
//! Parameters: <https://docs.searxng.org/dev/search_api.html>. The server must permit the format `json`.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderValue, header::ACCEPT};
use serde::{Deserialize, de::IgnoredAny};
use tokio::time::Instant;
use url::Url;

use super::{
    endpoint::{Endpoint, MAX_RESPONSE_BYTES, MAX_RESULTS, Rejection},
    failure::SearchFailure,
    provider::{Budget, Found, SearchHit, SearchProvider, SearchQuery},
    section::{ProviderName, SafeSearch, SearchSection},
};
use crate::api::{ApiRequest, ApiResponse, ApiTransport, BoundedList, endpoint};

/// Requests per second: the engines behind the server block clients that send too many.
const RATE: u32 = 4;

/// The provider `searxng`.
pub(super) struct Searxng {
    endpoint: Endpoint,
    url: Url,
    language: Option<String>,
    safe_search: SafeSearch,
}

impl Searxng {
    /// Creates the provider.
    pub(super) fn new(
        section: &SearchSection,
        base_url: &Url,
        transport: Arc<dyn ApiTransport>,
    ) -> Self {
        Self {
            endpoint: Endpoint::new(
                ProviderName::Searxng.name(),
                transport,
                RATE,
                Duration::from_secs(1),
            ),
            url: endpoint(base_url, ["search"]),
            language: section.language.clone(),
            safe_search: section.safesearch,
        }
    }

    fn request(&self, query: &SearchQuery, deadline: Instant) -> ApiRequest {
        let safe_search = match self.safe_search {
            SafeSearch::Off => "0",
            SafeSearch::Moderate => "1",
            SafeSearch::Strict => "2",
        };
        let mut url = self.url.clone();
        {
            let mut pairs = url.query_pairs_mut();
            pairs
                .append_pair("q", &query.text)
                .append_pair("format", "json")
                .append_pair("pageno", "1")
                .append_pair("safesearch", safe_search);
            if let Some(language) = &self.language {
                pairs.append_pair("language", language);
            }
            if let Some(freshness) = query.freshness {
                pairs.append_pair("time_range", freshness.name());
            }
        }
        ApiRequest::get(url, MAX_RESPONSE_BYTES, deadline)
            .with_header(ACCEPT, HeaderValue::from_static("application/json"))
    }
}

impl SearchProvider for Searxng {
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
            let mut found = self.endpoint.send(&request, budget, read).await?;
            // The server has no parameter for the number of results.
            found.hits.truncate(query.count.into());
            Ok(found)
        })
    }
}

#[derive(Deserialize)]
struct SearchResponse {
    results: BoundedList<Page, MAX_RESULTS>,
    #[serde(default)]
    unresponsive_engines: BoundedList<IgnoredAny, 1>,
}

#[derive(Deserialize)]
struct Page {
    title: Option<String>,
    url: Option<String>,
    content: Option<String>,
    #[serde(rename = "publishedDate")]
    published_date: Option<String>,
}

fn read(response: &ApiResponse) -> Result<Found, Rejection> {
    match response.status.as_u16() {
        200 => found(&response.body),
        429 => Err(Rejection::Limited(response.retry_after())),
        // Without the format `json` in its settings, the server answers 403.
        401 | 403 => Err(Rejection::Credentials { intermittent: false }),
        400 | 422 => Err(Rejection::Refused),
        408 | 500..=599 => Err(Rejection::Failed),
        _ => Err(Rejection::Malformed),
    }
}

fn found(body: &[u8]) -> Result<Found, Rejection> {
    let response: SearchResponse =
        serde_json::from_slice(body).map_err(|_| Rejection::Malformed)?;
    if response.results.is_empty() && !response.unresponsive_engines.is_empty() {
        // No result of engines that did not respond is no result.
        return Err(Rejection::Failed);
    }
    let pages: Vec<Page> = response.results.into();
    let hits = pages.into_iter().filter_map(|page| {
        Some(SearchHit {
            url: page.url?,
            title: page.title.unwrap_or_default(),
            snippet: page.content.unwrap_or_default(),
            age: page.published_date,
        })
    });
    Ok(Found { hits: hits.collect(), corrected: None })
}
