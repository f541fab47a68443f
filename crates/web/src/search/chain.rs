//! Several providers, tried in order.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_tools::ToolFailure;
use tokio::time::Instant;
use tracing::debug;

use super::{
    failure::SearchFailure,
    provider::{Budget, Found, SearchProvider, SearchQuery},
};

/// Share of the time for a provider that others follow.
const SHARE: Duration = Duration::from_secs(8);
/// Maximum expected wait for a provider that others follow.
const WAIT: Duration = Duration::from_secs(5);
/// Maximum expected wait for the last provider.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// The configured providers in the order in which they are tried.
pub struct ProviderChain(Vec<Arc<dyn SearchProvider>>);

/// The failures of all providers that were tried, in that order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SearchError(Vec<(&'static str, SearchFailure)>);

impl ProviderChain {
    /// Creates a chain.
    #[must_use]
    pub fn new(providers: Vec<Arc<dyn SearchProvider>>) -> Self {
        Self(providers)
    }

    /// Returns the names of the providers, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|provider| provider.name())
    }

    /// Returns the first result, with the name of its provider. The next provider is tried after every
    /// failure but a refused query.
    ///
    /// # Errors
    /// The failures of all providers that were tried.
    ///
    /// # Cancellation
    /// Dropping the future ends the request that is running.
    pub async fn search(
        &self,
        query: &SearchQuery,
        deadline: Instant,
    ) -> Result<(&'static str, Found), SearchError> {
        let mut failures = Vec::new();
        for (index, provider) in self.0.iter().enumerate() {
            let is_last = index + 1 == self.0.len();
            let budget = if is_last {
                Budget { deadline, max_wait: LAST_WAIT }
            } else {
                Budget { deadline: deadline.min(Instant::now() + SHARE), max_wait: WAIT }
            };
            let failure = match provider.search(query, budget).await {
                Ok(found) => return Ok((provider.name(), found)),
                Err(failure) => failure,
            };
            debug!(provider = provider.name(), %failure, "search failed");
            failures.push((provider.name(), failure));
            if !failure.allows_next() {
                break;
            }
        }
        Err(SearchError(failures))
    }
}

impl fmt::Debug for ProviderChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("search failed")?;
        for (index, (provider, failure)) in self.0.iter().enumerate() {
            let separator = if index == 0 { ": " } else { ". " };
            write!(f, "{separator}{provider}: {failure}")?;
        }
        Ok(())
    }
}

impl From<SearchError> for ToolFailure {
    /// The failure that most likely passes decides the code; the message has all of them.
    fn from(error: SearchError) -> Self {
        let message = error.to_string();
        let decisive =
            error.0.iter().map(|(_, failure)| failure).min_by_key(|failure| failure.rank());
        decisive.copied().unwrap_or(SearchFailure::Unreachable).into_tool_failure(message)
    }
}
