//! Requests to GitHub's API: token, rate limit, redirects, conditional requests.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION, ETAG, IF_NONE_MATCH},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{debug, warn};
use url::Url;

use super::{
    etag_cache::{EtagCache, Stored},
    failure::GithubFailure,
};
use crate::api::{
    ApiError, ApiRequest, ApiResponse, ApiTransport, BoundedList, Oversize, endpoint,
};

/// Version of the API that requests name.
const API_VERSION: HeaderValue = HeaderValue::from_static("2022-11-28");
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-github-api-version");
/// Limit of a JSON body, in bytes.
const MAX_JSON: usize = 8 * 1024 * 1024;
/// Number of elements on a page of a list.
const PAGE: usize = 100;
/// Maximum number of redirects, as of renamed repositories.
const MAX_REDIRECTS: usize = 3;
/// Delay after a refused request that names none.
const DEFAULT_DELAY: Duration = Duration::from_secs(60);
/// Longest delay: limits are per hour.
const MAX_DELAY: Duration = Duration::from_secs(3_600);

/// A client of the API.
pub(super) struct ApiClient {
    transport: Arc<dyn ApiTransport>,
    base: Url,
    token: Option<HeaderValue>,
    cache: Mutex<EtagCache>,
    limited_until: Mutex<Option<Instant>>,
}

/// Media types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    /// JSON.
    Json,
    /// The content of a file.
    Raw,
    /// A unified diff.
    Diff,
    /// Patches.
    Patch,
}

/// The requests for one page.
pub(super) struct Session<'a> {
    client: &'a ApiClient,
    deadline: Instant,
}

/// An accepted response.
#[derive(Debug)]
pub(super) struct AcceptedResponse {
    /// Body.
    pub(super) body: Vec<u8>,
    /// `true` if the body was longer than the limit.
    pub(super) truncated: bool,
    /// `true` if the server sent JSON, also when another media type was requested.
    pub(super) is_json: bool,
    /// `true` if more pages follow.
    has_next: bool,
}

impl ApiClient {
    /// Creates a client for the API at `base`. `token` is the value of the header `Authorization`.
    pub(super) fn new(
        transport: Arc<dyn ApiTransport>,
        base: Url,
        token: Option<HeaderValue>,
    ) -> Self {
        let (cache, limited_until) = (Mutex::default(), Mutex::new(None));
        Self { transport, base, token, cache, limited_until }
    }

    /// Begins the requests for one page.
    pub(super) fn session(&self, deadline: Instant) -> Session<'_> {
        Session { client: self, deadline }
    }
}

impl Session<'_> {
    /// Requests JSON.
    ///
    /// # Errors
    /// See [`GithubFailure`].
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        path: &[&str],
    ) -> Result<T, GithubFailure> {
        parsed(&self.get(self.url(path), Media::Json, None).await?)
    }

    /// Requests a list, at most `max_pages` pages of 100 elements. Returns whether there are more.
    ///
    /// # Errors
    /// See [`GithubFailure`].
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        max_pages: usize,
    ) -> Result<(Vec<T>, bool), GithubFailure> {
        let mut elements = Vec::new();
        for page in 1..=max_pages {
            let mut url = self.url(path);
            url.query_pairs_mut()
                .append_pair("per_page", &PAGE.to_string())
                .append_pair("page", &page.to_string());
            let response = self.get(url, Media::Json, None).await?;
            let page: Vec<T> = parsed::<BoundedList<T, PAGE>>(&response)?.into();
            elements.extend(page);
            if !response.has_next {
                return Ok((elements, false));
            }
        }
        Ok((elements, true))
    }

    /// Requests another media type, at most `max_bytes` of it.
    ///
    /// # Errors
    /// See [`GithubFailure`].
    pub(super) async fn text(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        media: Media,
        max_bytes: usize,
    ) -> Result<AcceptedResponse, GithubFailure> {
        let mut url = self.url(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.get(url, media, Some(max_bytes)).await
    }

    fn url(&self, path: &[&str]) -> Url {
        endpoint(&self.client.base, path.iter().copied())
    }

    /// Sends a request and follows redirects within the API's origin. Without `max_bytes`, a body over
    /// the limit for JSON is refused; with it, a longer body is truncated.
    async fn get(
        &self,
        mut url: Url,
        media: Media,
        max_bytes: Option<usize>,
    ) -> Result<AcceptedResponse, GithubFailure> {
        for _ in 0..=MAX_REDIRECTS {
            self.check_limit()?;
            let key = format!("{} {url}", media.name());
            let stored = self.client.cache.lock().get(&key);
            let request = self.request(url.clone(), media, max_bytes, stored.as_ref());
            let response = self
                .client
                .transport
                .send(request)
                .await
                .map_err(|error| transport_failure(&error))?;
            match response.status.as_u16() {
                304 => {
                    let Some(stored) = stored else { return Err(GithubFailure::Malformed) };
                    return Ok(stored.into());
                }
                301 | 302 | 307 | 308 => url = self.redirected(&url, &response)?,
                200 => return Ok(self.accept(key, response)),
                _ => return Err(self.reject(&response)),
            }
        }
        Err(GithubFailure::Malformed)
    }

    fn request(
        &self,
        url: Url,
        media: Media,
        max_bytes: Option<usize>,
        stored: Option<&Stored>,
    ) -> ApiRequest {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(media.name()));
        headers.insert(VERSION_HEADER, API_VERSION);
        if let Some(token) = &self.client.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        if let Some(stored) = stored {
            headers.insert(IF_NONE_MATCH, stored.etag.clone());
        }
        let oversize = if max_bytes.is_some() { Oversize::Truncate } else { Oversize::Refuse };
        let request = ApiRequest::get(url, max_bytes.unwrap_or(MAX_JSON), self.deadline);
        ApiRequest { headers, oversize, ..request }
    }

    fn redirected(&self, from: &Url, response: &ApiResponse) -> Result<Url, GithubFailure> {
        let target = response.header("location").and_then(|location| from.join(location).ok());
        let target = target.filter(|target| target.origin() == self.client.base.origin());
        target.ok_or_else(|| {
            warn!("GitHub redirects to another origin");
            GithubFailure::Malformed
        })
    }

    fn accept(&self, key: String, response: ApiResponse) -> AcceptedResponse {
        let is_json = response.header("content-type").is_some_and(|kind| {
            let essence = kind.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
        let has_next = response.header("link").is_some_and(|links| links.contains("rel=\"next\""));
        let etag = response.headers.get(ETAG).filter(|etag| etag.len() <= 256).cloned();
        if let Some(etag) = etag
            && !response.truncated
        {
            let stored = Stored { etag, body: response.body.clone(), has_next, is_json };
            self.client.cache.lock().put(key, stored);
        }
        AcceptedResponse { body: response.body, truncated: response.truncated, is_json, has_next }
    }

    fn reject(&self, response: &ApiResponse) -> GithubFailure {
        let status = response.status;
        if let Some(after) = limit(response) {
            warn!(seconds = after.as_secs(), "GitHub limits the requests");
            *self.client.limited_until.lock() = Some(Instant::now() + after);
            return GithubFailure::Limited { after };
        }
        match status.as_u16() {
            401 => {
                warn!("GitHub does not accept the token");
                GithubFailure::Credentials
            }
            404 | 410 | 422 => GithubFailure::NotFound { with_token: self.client.token.is_some() },
            406 | 413 => GithubFailure::TooLarge,
            408 | 500..=599 => GithubFailure::Unreachable,
            400..=499 => GithubFailure::Refused { status: status.as_u16() },
            _ => GithubFailure::Malformed,
        }
    }

    fn check_limit(&self) -> Result<(), GithubFailure> {
        let until = *self.client.limited_until.lock();
        let after = until.map(|until| until.saturating_duration_since(Instant::now()));
        match after.filter(|after| !after.is_zero()) {
            Some(after) => Err(GithubFailure::Limited { after }),
            None => Ok(()),
        }
    }
}

impl Media {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "application/vnd.github+json",
            Self::Raw => "application/vnd.github.raw+json",
            Self::Diff => "application/vnd.github.diff",
            Self::Patch => "application/vnd.github.patch",
        }
    }
}

impl From<Stored> for AcceptedResponse {
    fn from(stored: Stored) -> Self {
        let Stored { body, has_next, is_json, .. } = stored;
        Self { body, truncated: false, is_json, has_next }
    }
}

/// Parses the JSON of a response.
///
/// # Errors
/// [`GithubFailure::Malformed`] for anything else.
pub(super) fn parsed<T: DeserializeOwned>(response: &AcceptedResponse) -> Result<T, GithubFailure> {
    serde_json::from_slice(&response.body).map_err(|error| {
        debug!(line = error.line(), column = error.column(), "GitHub's response cannot be read");
        GithubFailure::Malformed
    })
}

fn transport_failure(error: &ApiError) -> GithubFailure {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    warn!(%error, cause, "request to GitHub failed");
    match error {
        ApiError::Failed(_) | ApiError::TimedOut => GithubFailure::Unreachable,
        ApiError::TooLarge { .. } => GithubFailure::TooLarge,
    }
}

/// Returns the delay that a response states, if it is about the rate limit.
fn limit(response: &ApiResponse) -> Option<Duration> {
    let is_candidate =
        matches!(response.status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
    let is_used_up = response.header("x-ratelimit-remaining") == Some("0");
    let after = response.retry_after();
    let is_limited =
        is_used_up || after.is_some() || response.status == StatusCode::TOO_MANY_REQUESTS;
    if !is_candidate || !is_limited {
        return None;
    }
    let reset = || {
        let at: u64 = response.header("x-ratelimit-reset")?.parse().ok()?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(at))?;
        at.duration_since(SystemTime::now()).ok()
    };
    let after = after.or_else(|| if is_used_up { reset() } else { None });
    Some(after.unwrap_or(DEFAULT_DELAY).clamp(Duration::from_secs(1), MAX_DELAY))
}
