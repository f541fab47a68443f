//! Creation of the configured search providers.

use std::sync::Arc;

use secrecy::ExposeSecret;

use super::{
    brave::Brave,
    provider::SearchProvider,
    searxng::Searxng,
    section::{ProviderName, SearchSection},
    tavily::Tavily,
};
use crate::{
    api::{ApiTransport, base_url},
    secret::header,
};

/// Order of the providers if the configuration states none.
const ORDER: [ProviderName; 3] = [ProviderName::Brave, ProviderName::Tavily, ProviderName::Searxng];

/// Creates the configured providers in their order. Invalid ones, which [`SearchSection::validate`]
/// reports, are omitted.
pub(super) fn providers(
    section: &SearchSection,
    environment: impl Fn(&str) -> Option<String>,
    transport: &Arc<dyn ApiTransport>,
) -> Vec<Arc<dyn SearchProvider>> {
    let names = if section.providers.is_empty() { &ORDER[..] } else { &section.providers };
    names.iter().filter_map(|name| provider(section, *name, &environment, transport)).collect()
}

fn provider(
    section: &SearchSection,
    name: ProviderName,
    environment: &impl Fn(&str) -> Option<String>,
    transport: &Arc<dyn ApiTransport>,
) -> Option<Arc<dyn SearchProvider>> {
    let transport = transport.clone();
    Some(match name {
        ProviderName::Brave => {
            let token = header(section.brave_key(environment)?.expose_secret())?;
            let url = base_url(&section.brave.base_url, true).ok()?;
            Arc::new(Brave::new(section, &url, token, transport))
        }
        ProviderName::Tavily => {
            let url = base_url(&section.tavily.base_url, true).ok()?;
            Arc::new(Tavily::new(&url, section.tavily_access(environment)?, transport))
        }
        ProviderName::Searxng => {
            let url = base_url(section.searxng.url.as_deref()?, false).ok()?;
            Arc::new(Searxng::new(section, &url, transport))
        }
    })
}
