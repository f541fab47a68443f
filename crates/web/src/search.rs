//! Search: the tool `web_search`, and the providers behind it.
//!
//! [`WebSearch`] tries the configured providers in order. Each provider sends through its own
//! endpoint, which paces requests by the rate that the provider announces.

mod brave;
mod chain;
mod configured;
mod endpoint;
mod failure;
mod listing;
mod pacer;
mod plain_text;
mod provider;
mod rate_limits;
mod searxng;
mod section;
mod tavily;
#[cfg(test)]
pub(crate) mod tests;
mod tool;

pub use chain::{ProviderChain, SearchError};
pub use failure::SearchFailure;
pub(crate) use failure::approximate;
pub use provider::{Budget, Found, Freshness, SearchHit, SearchProvider, SearchQuery};
pub use section::{
    BraveSection, ProviderName, SafeSearch, SearchSection, SearxngSection, TavilySection,
};
pub use tool::{NotConfigured, WebSearch};
