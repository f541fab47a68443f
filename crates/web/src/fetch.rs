//! Fetching of pages.

mod host_limit;
pub(crate) mod page_url;
mod robots;
mod robots_rules;

use std::{sync::Arc, time::Duration};

use http::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response};
use rockbot_egress::{
    ClientOptions, DialPolicy, EgressError, Fetch, GuardedClient, Hop, read_body,
};
use rockbot_tools::ToolFailure;
use tokio::time::{Instant, timeout_at};
use tracing::debug;
use url::Url;

use self::{
    host_limit::HostLimit,
    robots::{Permission, Robots},
};
use crate::page_router::{PageRouter, RouteFailure, RouteOutcome, RoutedPage};

/// Time until the head of a response, and between parts of its body.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Media types that pages are requested in. Markdown needs no extraction.
const ACCEPTED: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8,\
    application/json;q=0.7,*/*;q=0.1";
/// Identifies the client to sites. The URL describes it.
const USER_AGENT: &str =
    concat!("RockBot/", env!("CARGO_PKG_VERSION"), " (+", env!("CARGO_PKG_REPOSITORY"), ")");

/// The outcome of a fetch.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// A router has read the page.
    Routed { page: RoutedPage, url: Url },
    Response {
        response: PageResponse,
        /// The failure of the router that the page replaces.
        replaced: Option<RouteFailure>,
    },
}

/// A response with its body, or the head of an unsuccessful one.
#[derive(Debug)]
pub(crate) struct PageResponse {
    /// Final address.
    pub(crate) url: Url,
    pub(crate) status: u16,
    /// Media type in lower case, without parameters; empty without one.
    pub(crate) media_type: String,
    pub(crate) charset: Option<String>,
    /// Seconds of `Retry-After`.
    pub(crate) retry_after: Option<u64>,
    /// Empty for an unsuccessful response.
    pub(crate) body: Vec<u8>,
}

/// A page that was not fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The rules of the site exclude the page.
    #[error("robots.txt of the site excludes the page")]
    Excluded,
    #[error("robots.txt of the site cannot be read")]
    RobotsUnknown,
    /// Too many pages of the host, or in all, were being read until the deadline.
    #[error("too many pages are being read")]
    Busy,
    /// A router failed, and the page itself is not read or cannot be.
    #[error(transparent)]
    Routed(#[from] ToolFailure),
}

impl FetchError {
    /// Returns the failure of the router that the page was read instead of, or this error without one.
    fn or_replaced(self, replaced: Option<RouteFailure>) -> Self {
        let Some(replaced) = replaced else { return self };
        debug!(error = %self, "page that replaces a routed one was not fetched");
        Self::Routed(replaced.failure)
    }
}

/// Fetches pages: hop by hop, each hop checked by the dial policy, the routers and the site's robots.txt.
pub(crate) struct Fetcher {
    client: GuardedClient,
    headers: HeaderMap,
    /// `None`: robots.txt is ignored.
    robots: Option<Robots>,
    limit: HostLimit,
    router: Option<Arc<dyn PageRouter>>,
    max_body_bytes: usize,
}

impl Fetcher {
    /// Creates a fetcher.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read.
    pub(crate) fn new(
        policy: DialPolicy,
        respects_robots: bool,
        router: Option<Arc<dyn PageRouter>>,
        max_body_bytes: usize,
    ) -> Result<Self, EgressError> {
        let options = ClientOptions {
            user_agent: HeaderValue::from_static(USER_AGENT),
            read_timeout: Some(IDLE_TIMEOUT),
            gzip: true,
            ..ClientOptions::default()
        };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static("en,*;q=0.5"));
        Ok(Self {
            client: GuardedClient::new(Arc::new(policy), options)?,
            headers,
            robots: respects_robots.then(Robots::default),
            limit: HostLimit::default(),
            router,
            max_body_bytes,
        })
    }

    /// Fetches a page by the deadline. Dropping the future closes its connection.
    pub(crate) async fn fetch(&self, url: Url, deadline: Instant) -> Result<Fetched, FetchError> {
        // Checked before a router sees it.
        self.client.policy().check(&url).map_err(EgressError::from)?;
        let mut fetch = Fetch::new(&self.client, Method::GET, url)
            .with_headers(self.headers.clone())
            .with_deadline(deadline);
        let (mut replaced, mut replaced_at) = (None, None);
        loop {
            let url = fetch.url().clone();
            match self.routed(&url, deadline).await? {
                RouteOutcome::Page(page) => return Ok(Fetched::Routed { page, url }),
                RouteOutcome::Failed(failure) => {
                    (replaced, replaced_at) = (Some(failure), Some(url.origin()));
                }
                // The failure says nothing about another site.
                RouteOutcome::Unknown if replaced_at != Some(url.origin()) => replaced = None,
                RouteOutcome::Unknown => {}
            }
            match self.next_hop(&mut fetch, url, deadline).await {
                Ok(None) => {}
                Ok(Some(response)) => return Ok(Fetched::Response { response, replaced }),
                Err(error) => return Err(error.or_replaced(replaced)),
            }
        }
    }

    /// Sends one request. Returns `None` after a redirect.
    async fn next_hop(
        &self,
        fetch: &mut Fetch,
        url: Url,
        deadline: Instant,
    ) -> Result<Option<PageResponse>, FetchError> {
        self.check_robots(&url, deadline).await?;
        let host = url.host_str().unwrap_or_default();
        let _permit = self.limit.acquire(host, deadline).await.ok_or(FetchError::Busy)?;
        match fetch.next_hop().await? {
            Hop::Response(response) => Ok(Some(self.read(url, response, deadline).await?)),
            Hop::Redirect(_) => Ok(None),
        }
    }

    async fn routed(&self, url: &Url, deadline: Instant) -> Result<RouteOutcome, FetchError> {
        let routed = self.router.as_ref().and_then(|router| router.route(url, deadline));
        let Some(routed) = routed else { return Ok(RouteOutcome::Unknown) };
        match timeout_at(deadline, routed).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(EgressError::TimedOut.into()),
        }
    }

    async fn check_robots(&self, url: &Url, deadline: Instant) -> Result<(), FetchError> {
        let Some(robots) = &self.robots else { return Ok(()) };
        match robots.permission(&self.client, url, deadline).await {
            Permission::Granted => Ok(()),
            Permission::Denied => Err(FetchError::Excluded),
            Permission::Unknown => Err(FetchError::RobotsUnknown),
        }
    }

    async fn read(
        &self,
        url: Url,
        response: Response,
        deadline: Instant,
    ) -> Result<PageResponse, FetchError> {
        let header = |name| response.headers().get(name)?.to_str().ok();
        let (media_type, charset) = header(CONTENT_TYPE).map(content_type).unwrap_or_default();
        let retry_after = header(RETRY_AFTER).and_then(|wait| wait.trim().parse().ok());
        let status = response.status();
        let body = match status.is_success() {
            true => read_body(response, self.max_body_bytes, Some(deadline)).await?,
            false => Vec::new(),
        };
        let status = status.as_u16();
        Ok(PageResponse { url, status, media_type, charset, retry_after, body })
    }
}

/// Splits a `Content-Type` into media type and charset.
fn content_type(header: &str) -> (String, Option<String>) {
    let mut parts = header.split(';');
    let media_type = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    });
    (media_type, charset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_is_split() {
        for (header, media_type, charset) in [
            ("Text/HTML; Charset=\"utf-8\"", "text/html", Some("utf-8")),
            ("text/plain;format=flowed;charset=koi8-r", "text/plain", Some("koi8-r")),
            ("application/json", "application/json", None),
            ("", "", None),
        ] {
            assert_eq!(content_type(header), (media_type.to_owned(), charset.map(str::to_owned)));
        }
    }
}
