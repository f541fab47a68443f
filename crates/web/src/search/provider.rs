//! The port of search providers.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::time::Instant;

use super::failure::SearchFailure;

/// A service that searches the web.
pub trait SearchProvider: Send + Sync + 'static {
    /// Returns its name, for results, metrics and configuration.
    fn name(&self) -> &'static str;

    /// Searches. The text of the hits is as the service sent it.
    ///
    /// # Errors
    /// See [`SearchFailure`].
    ///
    /// # Cancellation
    /// Dropping the future ends the request; the service may have counted it.
    fn search<'a>(
        &'a self,
        query: &'a SearchQuery,
        budget: Budget,
    ) -> BoxFuture<'a, Result<Found, SearchFailure>>;
}

/// The time that a search may take.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Time by which the response must be complete.
    pub deadline: Instant,
    /// Maximum expected wait for the provider's rate limit. A search that would wait longer fails
    /// immediately.
    pub max_wait: Duration,
}

/// A search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// Words to search for: 1 to 400 characters, at most 50 words.
    pub text: String,
    /// Maximum number of hits, 1 to 20.
    pub count: u8,
    /// Maximum age of the pages.
    pub freshness: Option<Freshness>,
}

/// The maximum age of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl Freshness {
    /// Returns the name, as models, SearXNG and Tavily write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages, the best first.
    pub hits: Vec<SearchHit>,
    /// Query that the service searched for, if it corrected the given one.
    pub corrected: Option<String>,
}

/// A page. All text comes from outside and may hold markup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchHit {
    /// Title.
    pub title: String,
    /// URL.
    pub url: String,
    /// A few sentences of the page.
    pub snippet: String,
    /// Age or date of the page, in the service's words.
    pub age: Option<String>,
}
